// A memory that outlives the page where localStorage is too small or absent, as in workers: IndexedDB, flushed to disk.

const STORE = "items";

/** A request of IndexedDB as a promise. */
function settled(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** An object with getItem and setItem over a database of this origin; each call opens and closes it. */
export function indexedStorage(name = "dpsql") {
  async function open() {
    const request = globalThis.indexedDB.open(name, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    return settled(request);
  }

  return {
    async getItem(key) {
      const database = await open();
      try {
        return (await settled(database.transaction(STORE).objectStore(STORE).get(key))) ?? null;
      } finally {
        database.close();
      }
    },
    async setItem(key, text) {
      const database = await open();
      try {
        const transaction = database.transaction(STORE, "readwrite", { durability: "strict" });
        const written = new Promise((resolve, reject) => {
          transaction.oncomplete = resolve;
          transaction.onabort = () => reject(transaction.error);
        });
        transaction.objectStore(STORE).put(text, key);
        await written;
      } finally {
        database.close();
      }
    },
  };
}
