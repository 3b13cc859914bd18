/**
 * Lets messages in, such as one that cancels: an engine that answers at once would keep them out.
 * @returns {Promise<void>}
 */
export function pause() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
