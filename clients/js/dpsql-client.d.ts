/** A collection's plan, read and checked; opaque but for these. */
export interface Plan {
  readonly collection: string;
  /** What one report costs, as a decimal text. */
  readonly epsilon: string;
  readonly round: number;
  readonly axes: readonly { readonly name: string; readonly leaves: number; readonly key?: string }[];
  readonly measures: readonly { readonly name: string; readonly lower: number; readonly upper: number; readonly scale: number }[];
  /** First eight bytes of the SHA-256 of the plan's bytes. */
  readonly hash: Uint8Array;
}

/** One own row: a leaf for each axis of the plan, a number of steps for each measure. */
export interface Row {
  readonly leaves: readonly number[];
  readonly measures: readonly number[];
}

/** localStorage, AsyncStorage of React Native, or `indexedStorage()`: texts that are there again next time. */
export interface TextStorage {
  getItem(key: string): string | null | Promise<string | null>;
  setItem(key: string, text: string): unknown;
}

/** Gives so many fresh bytes; `systemEntropy` unless a test says otherwise. */
export type Entropy = (size: number) => Uint8Array;

/** Read plan bytes; rejects plans that cost more than they say, or that some could not answer. */
export function readPlan(bytes: Uint8Array): Promise<Plan>;

export function systemEntropy(size: number): Uint8Array;

/** One report about one person, drawn anew each time; `Memory` draws once. */
export function respond(plan: Plan, rows: readonly Row[], entropy?: Entropy): Uint8Array;

/** A person answers a collection once. */
export class Memory {
  /**
   * @param storage where what was drawn is kept
   * @param largestEpsilon most for one collection, as a number or a text such as "1/2"
   * @param lifetimeCap most for all collections together
   */
  constructor(storage: TextStorage, largestEpsilon: number | string, lifetimeCap: number | string);

  /** Bytes to send, the same ones whenever it is asked; null if this device belongs to another round. */
  answer(plan: Plan, rows: readonly Row[]): Promise<Uint8Array | null>;
}

export function toHex(bytes: Uint8Array): string;
export function fromHex(text: string): Uint8Array;
