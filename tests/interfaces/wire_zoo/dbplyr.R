# What dbplyr over RPostgreSQL does with a server: `Rscript dbplyr.R PORT`. A line of JSON for each step.
suppressPackageStartupMessages({library(DBI); library(dplyr); library(dbplyr)})
port <- as.integer(commandArgs(trailingOnly = TRUE)[1])
con <- dbConnect(RPostgreSQL::PostgreSQL(), host = "127.0.0.1", port = port, dbname = "shop", user = "dbplyr", password = "")

step <- function(name, work) {
  reason <- tryCatch({ stopifnot(work()); "" }, error = function(e) gsub("[^ -~]|[\"\\\\]", " ", conditionMessage(e)))
  cat(sprintf("{\"driver\": \"dbplyr\", \"step\": \"%s\", \"error\": \"%s\"}\n", name, reason))
}

suppressWarnings(suppressMessages({
  shop <- tbl(con, "shop")
  sales <- tbl(con, "sales")
  customer <- tbl(con, "customer")
  step("tables", function() all(c("sales", "customer", "shop") %in% dbListTables(con)))
  step("fields", function() "amount" %in% dbListFields(con, "sales"))
  step("query", function() nrow(dbGetQuery(con, "SELECT region, COUNT(*) AS n FROM shop GROUP BY region")) >= 2)
  step("count", function() (sales %>% count() %>% collect())$n > 0)
  step("summarise", function() nrow(shop %>% group_by(region) %>% summarise(n = n(), a = mean(amount, na.rm = TRUE)) %>% collect()) >= 2)
  step("filter", function() (customer %>% filter(between(age, 30, 39)) %>% summarise(n = n()) %>% collect())$n > 0)
  step("join", function() nrow(sales %>% inner_join(customer, by = "customer_id") %>% count(region) %>% collect()) >= 2)
  step("top", function() nrow(shop %>% count(region, sort = TRUE) %>% head(1) %>% collect()) == 1)
  step("share", function() {
    parts <- shop %>% group_by(region) %>% summarise(n = n()) %>% mutate(p = n / sum(n, na.rm = TRUE)) %>% collect()
    abs(sum(parts$p) - 1) < 0.01
  })
  step("error", function() inherits(try(dbGetQuery(con, "SELECT age FROM customer"), silent = TRUE), "try-error") ||
    is.null(suppressWarnings(dbGetQuery(con, "SELECT age FROM customer"))))
}))
