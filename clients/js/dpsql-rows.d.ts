import type { Plan, Row } from "./dpsql-client.js";

/** What a field of a record may be; anything else counts as the plan says for what is no value. */
export type FieldValue = string | number | bigint | boolean | Date | null | undefined;

/** A record by the plan's names, `table.column`. Unknown fields are no error: an error that depends on a record tells of it. */
export type FieldRecord = Readonly<Record<string, FieldValue>>;

/**
 * Throws where the plan asks for none of these names. Call it with all names that records of this app can have, before
 * any record is read.
 */
export function checkFields(plan: Plan, fields: readonly string[]): void;

/** Records as rows; those without a leaf on some axis are left out. Never throws for what a record holds. */
export function toRows(plan: Plan, records: readonly FieldRecord[]): Row[];

/** Records joined with a public table's rows by key. */
export function join(
  facts: readonly FieldRecord[], dimension: ReadonlyMap<FieldValue, FieldRecord>, key: string,
): FieldRecord[];
