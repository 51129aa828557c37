// Waits between the requests of a page. Nothing here needs a browser.

// pause waits for some milliseconds, until the document is shown or hidden, or until its page is left.
export function pause(doc: EventTarget, wait: number, left: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const over = new AbortController();
    const end = (): void => {
      clearTimeout(timer);
      over.abort(); // a page that is open for days keeps no listeners
      done();
    };
    const timer = setTimeout(end, wait);
    doc.addEventListener("visibilitychange", end, { signal: over.signal });
    left.addEventListener("abort", end, { signal: over.signal });
    if (left.aborted) end();
  });
}
