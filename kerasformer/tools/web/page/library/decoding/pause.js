/**
 * Lets pending messages be handled, such as a cancellation; a fast engine would otherwise block them.
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
