// What node's drivers do with a server: `node drivers.js DRIVER PORT`. A line of JSON for each step.
const [driver, port] = process.argv.slice(2);
const slow = process.env.SLOW || "SELECT pg_sleep(20)";
const assert = require("node:assert");
const COUNT = "SELECT COUNT(*) AS n FROM shop WHERE age >= $1 AND region = $2";
const GROUPS = "SELECT region, COUNT(*) AS n FROM shop WHERE region IS NOT NULL GROUP BY region ORDER BY region";

async function step(name, work) {
  let reason = "";
  try { await work(); } catch (error) { reason = `${error.name}: ${error.message} ${error.code || ""}`; }
  console.log(JSON.stringify({ driver, step: name, error: reason }));
}

async function pg() {
  const { Client, Pool } = require("pg");
  const Cursor = require("pg-cursor");
  const address = { host: "127.0.0.1", port: Number(port), user: "node-pg", database: "shop" };
  const client = new Client(address);
  await step("connect", () => client.connect());
  await step("parameters", async () => {
    assert.equal((await client.query(COUNT, [30, "east"])).rows.length, 1);
    assert.equal((await client.query("SELECT COUNT(*) AS n FROM shop WHERE region = ANY($1)", [["east", "west"]])).rows.length, 1);
    assert.equal((await client.query("SELECT COUNT(*) AS n FROM shop WHERE age = ANY($1::int[])", [[30, 31]])).rows.length, 1);
    await client.query("SELECT COUNT(*) AS n FROM shop WHERE sold_on >= $1", [new Date(Date.UTC(2025, 1, 1))]);
    await client.query("SELECT COUNT(*) AS n FROM shop WHERE sold_on >= $1::date", ["2025-02-01"]);
    assert.equal((await client.query("SELECT $1::numeric AS x", ["12345.6700"])).rows[0].x, "12345.6700");
    assert.deepEqual((await client.query("SELECT $1::int[] AS x", [[1, 2]])).rows[0].x, [1, 2]);
  });
  await step("binary", async () => {
    assert.equal((await client.query({ text: COUNT, values: [30, "east"], binary: true })).rows.length, 1);
  });
  await step("prepared", async () => {
    for (let i = 0; i < 3; i++) await client.query({ name: "count", text: COUNT, values: [30, "east"] });
  });
  await step("cursor", async () => {
    const cursor = client.query(new Cursor(GROUPS));
    assert.equal((await cursor.read(1)).length, 1);
    await cursor.close();
  });
  await step("types", async () => {
    const { rows } = await client.query("SELECT typname, oid, typarray FROM pg_type WHERE typtype = 'b' AND typname = $1", ["numeric"]);
    assert.equal(rows[0].oid, 1700);
  });
  await step("copy", async () => {
    const { to } = require("pg-copy-streams");
    const stream = client.query(to(`COPY (${GROUPS}) TO STDOUT`));
    let text = "";
    for await (const chunk of stream) text += chunk;
    assert.equal(text.trim().split("\n").length, 2);
  });
  await step("errors", async () => {
    await assert.rejects(client.query("SELECT COUNT(*) FROM nothing"), { code: "42P01" });
    await client.query("SET statement_timeout = 300");
    await assert.rejects(client.query(slow), { code: "57014" });
  });
  await step("crowd", async () => {
    const pool = new Pool({ ...address, max: 8 });
    await Promise.all([...Array(32).keys()].map((age) => pool.query(COUNT, [20 + age, "east"])));
    await pool.end();
  });
  await client.end();
}

async function postgres() {
  const sql = require("postgres")({ host: "127.0.0.1", port: Number(port), user: "postgres-js", database: "shop", max: 1 });
  await step("connect", () => sql`SELECT 1 AS x`);
  await step("parameters", async () => {
    assert.equal((await sql`SELECT COUNT(*) AS n FROM shop WHERE age >= ${30} AND region = ${"east"}`).length, 1);
    assert.equal((await sql`SELECT COUNT(*) AS n FROM shop WHERE region IN ${sql(["east", "west"])}`).length, 1);
    assert.equal((await sql`SELECT COUNT(*) AS n FROM shop WHERE region = ANY(${["east", "west"]})`).length, 1);
    assert.equal((await sql`SELECT COUNT(*) AS n FROM shop WHERE sold_on >= ${new Date(Date.UTC(2025, 1, 1))}`).length, 1);
    assert.equal((await sql`SELECT ${"12345.6700"}::numeric AS x`)[0].x, "12345.6700");
  });
  await step("cursor", async () => {
    let count = 0;
    for await (const [row] of sql.unsafe(GROUPS).cursor(1)) count += row ? 1 : 0;
    assert.equal(count, 2);
  });
  await step("transaction", () => sql.begin("read only", (t) => t`SELECT COUNT(*) AS n FROM sales`));
  await step("errors", () => assert.rejects(sql`SELECT COUNT(*) FROM nothing`, { code: "42P01" }));
  await sql.end();
}

async function sequelize() {
  const { Sequelize, DataTypes, fn, col } = require("sequelize");
  const orm = new Sequelize("shop", "sequelize", "", { dialect: "postgres", host: "127.0.0.1", port: Number(port), logging: false });
  await step("connect", () => orm.authenticate());
  await step("tables", async () => assert.ok(JSON.stringify(await orm.getQueryInterface().showAllTables()).includes("sales")));
  await step("columns", async () => assert.ok((await orm.getQueryInterface().describeTable("sales")).amount));
  const Shop = orm.define("shop", { region: { type: DataTypes.TEXT, primaryKey: true }, age: DataTypes.INTEGER },
                          { tableName: "shop", timestamps: false });
  await step("count", async () => assert.ok((await Shop.count({ where: { region: "east" } })) > 0));
  await step("groups", async () => {
    const rows = await Shop.findAll({ attributes: ["region", [fn("COUNT", col("*")), "n"]], group: ["region"], raw: true });
    assert.ok(rows.length >= 2);
  });
  await step("bind", async () => assert.equal((await orm.query(COUNT, { bind: [30, "east"], type: "SELECT" })).length, 1));
  await step("errors", () => assert.rejects(orm.query("SELECT COUNT(*) FROM nothing"), (e) => e.parent.code === "42P01"));
  await orm.close();
}

async function typeorm() {
  const { DataSource } = require("typeorm");
  const source = new DataSource({ type: "postgres", host: "127.0.0.1", port: Number(port), username: "typeorm", database: "shop" });
  await step("connect", () => source.initialize());
  await step("groups", async () => {
    const query = source.createQueryBuilder().select("s.region", "region").addSelect("COUNT(*)", "n").from("shop", "s");
    assert.ok((await query.groupBy("s.region").getRawMany()).length >= 2);
    const few = query.clone().where("s.age >= :age AND s.region = :region", { age: 30, region: "east" });
    assert.equal((await few.getRawMany()).length, 1);
  });
  await step("tables", async () => {
    const runner = source.createQueryRunner();
    assert.ok((await runner.getTable("sales")).findColumnByName("amount"));
    await runner.release();
  });
  await step("parameters", async () => assert.equal((await source.query(COUNT, [30, "east"])).length, 1));
  await step("transaction", () => source.transaction((manager) => manager.query(GROUPS)));
  await step("errors", () => assert.rejects(source.query("SELECT COUNT(*) FROM nothing"), { code: "42P01" }));
  await source.destroy();
}

const run = { "node-pg": pg, "postgres-js": postgres, sequelize, typeorm }[driver];
run().then(() => process.exit(0));
