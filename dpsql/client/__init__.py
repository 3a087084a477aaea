"""What runs on a person's own device: it reads a plan, perturbs one answer and returns report bytes.

Standard library only, so that it can be read in one sitting and carried anywhere. The whole flow is in
`device.respond`; every draw goes through `entropy.below`.

| module  | idea |
|---------|------|
| entropy | bytes to exact uniform integers |
| perturb | the four randomizers, by integer weights |
| oracles | the same as parts of a plan |
| kinds   | what a view asks: slot, row, cell, item |
| plan    | reading a collection plan |
| check   | refusing one |
| report  | report bytes, version 1, and their JSON twin |
| varint  | integers in reports |
| device  | view, item, perturbation |
| rows    | joining and looking values up |
| memory  | a person answers a collection once |
"""

from dpsql.client.device import respond
from dpsql.client.kinds import Row
from dpsql.client.memory import Memory
from dpsql.client.plan import Plan, View, read_plan
from dpsql.client.report import Report, decode, encode, from_json, to_json

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
