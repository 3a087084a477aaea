{#- Rows whose interval is wider than the pipeline allows, or open at an end: width is high - low. -#}
{% test interval_within(model, column_name, width) %}
select * from {{ model }}
where {{ column_name }}_low is null or {{ column_name }}_high is null
   or {{ column_name }}_high - {{ column_name }}_low > {{ width }}
{% endtest %}

{#- Rows whose interval does not hold the estimate: a file that was changed, or columns of two exports. -#}
{% test estimate_inside(model, column_name) %}
select * from {{ model }}
where not {{ column_name }} between coalesce({{ column_name }}_low, {{ column_name }})
                                and coalesce({{ column_name }}_high, {{ column_name }})
{% endtest %}
