"""Client of a person's own device: it reads a plan, perturbs one answer and returns report bytes.

Standard library only, so that it can be read in one sitting and carried anywhere. The whole flow is in
`device.respond`; every draw goes through `entropy.below`.

| module  | idea |
|---------|------|
| entropy | bytes to exact uniform integers |
| oracles | the four randomizers, by integer weights, and their payloads |
| plan    | reading a collection plan, and refusing one |
| device  | rows to leaves, view, item, perturbation; report bytes and their JSON twin; once a person and collection |
"""

from dpsql.client.device import Memory, Report, decode, encode, from_json, respond, to_json
from dpsql.client.plan import Plan, Row, View, read_plan

__all__ = [
    "Memory",
    "Plan",
    "Report",
    "Row",
    "View",
    "decode",
    "encode",
    "from_json",
    "read_plan",
    "respond",
    "to_json",
]
