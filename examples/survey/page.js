// The survey page: fetch the plan, look answers up in its axes, send one scrambled report.
import { Memory, readPlan } from "./dpsql-client.js";
import { toRows } from "./dpsql-rows.js";

const LARGEST_EPSILON = 1; // what this page gives to one collection
const LIFETIME_CAP = 4; // and to all collections together

const status = document.querySelector("#status");
const plan = await readPlan(new Uint8Array(await (await fetch("plan.json")).arrayBuffer()));
const memory = new Memory(localStorage, LARGEST_EPSILON, LIFETIME_CAP);
status.textContent = "ready";

document.querySelector("#form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const report = await memory.answer(plan, toRows(plan, [Object.fromEntries(new FormData(event.target))]));
  if (report === null) {
    status.textContent = "nothing to send in this round";
    return;
  }
  const sent = await fetch("report", { method: "POST", body: report });
  status.textContent = sent.ok ? "sent" : "not sent; press again to resend the same bytes";
});
