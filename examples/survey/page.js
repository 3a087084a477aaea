// The survey page: fetch the plan, look answers up in its axes, send one scrambled report.
import { Memory, readPlan } from "./dpsql-client.js";

const LARGEST_EPSILON = 1; // what this page gives to one collection
const LIFETIME_CAP = 4; // and to all collections together

/** The leaf of an answer, by the plan's own words: a list of values, or the first unit of each bin. */
function leafOf(axis, answer) {
  if (axis.values) {
    const leaf = axis.values.indexOf(answer);
    return leaf < 0 ? axis.other_leaf : leaf;
  }
  const unit = Math.round(Number(answer) * 10 ** (axis.scale ?? 0));
  if (unit < axis.starts[0] || unit > axis.upper) return axis.other_leaf;
  return axis.starts.findLastIndex((start) => start <= unit);
}

const status = document.querySelector("#status");
const plan = await readPlan(new Uint8Array(await (await fetch("plan.json")).arrayBuffer()));
const memory = new Memory(localStorage, LARGEST_EPSILON, LIFETIME_CAP);
status.textContent = "ready";

document.querySelector("#form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const answers = new FormData(event.target);
  const row = {
    leaves: plan.axes.map((axis) => leafOf(axis, answers.get(axis.name))),
    measures: plan.measures.map((measure) => Math.round(Number(answers.get(measure.name)) * 10 ** measure.scale)),
  };
  const report = memory.answer(plan, [row]);
  const sent = await fetch("report", { method: "POST", body: report });
  status.textContent = sent.ok ? "sent" : "not sent; press again to resend the same bytes";
});
