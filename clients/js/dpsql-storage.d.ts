import type { TextStorage } from "./dpsql-client.js";

/** A memory in IndexedDB: for workers, and where localStorage is too small. */
export function indexedStorage(name?: string): TextStorage;
