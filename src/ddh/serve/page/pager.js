// Pages of a list, fetched as the reader scrolls.

/** @template {ListPage<any>} T */
export class Pager {
  /**
   * Fetches the next page when `end` comes within `margin` of the viewport.
   * @param {Element} end @param {string} margin
   * @param {(page: T) => void} arrived @param {(error: Error) => void} failed
   */
  constructor(end, margin, arrived, failed) {
    this.end = end;
    this.arrived = arrived;
    this.failed = failed;
    this.next = /** @type {string | number | null} */ (null);
    this.request = /** @type {AbortController | null} */ (null);
    this.observer = new IntersectionObserver((entries) => {
      if (entries.some(({ isIntersecting }) => isIntersecting)) this.more();
    }, { rootMargin: margin });
  }

  /** Page through another list. @param {PageSource<T>} source @param {string | number | null} next */
  start(source, next = 0) {
    this.stop();
    this.source = source;
    this.next = next;
  }

  stop() {
    this.request?.abort();
    this.request = null;
    this.observer.disconnect();
  }

  async more() {
    if (this.request || this.next === null || !this.source) return;
    const request = (this.request = new AbortController());
    try {
      const page = await this.source(this.next, request.signal);
      if (request.signal.aborted) return;
      this.next = page.next;
      this.arrived(page);
    } catch (error) {
      if (request.signal.aborted) return;
      this.next = null;
      this.failed(error);
    } finally {
      if (this.request === request) this.request = null;
    }
    this.watch();
  }

  /** Watch the end anew: an end that is still in view is reported to a new observation only. */
  watch() {
    this.observer.disconnect();
    this.observer.observe(this.end);
  }
}
