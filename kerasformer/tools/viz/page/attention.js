// Attention of a Transformer, drawn in a page: plain JavaScript without a library, with attention.css beside it.
//
// A page includes both files and calls, for any number of elements:
//
//     const view = KerasformerAttention.mount(element, data, { view: "heads", layer: 0, head: 3 });
//     view.show({ layer: 2, head: null });  // changes any of the options
//     view.remove();                        // empties the element
//
// Options, all optional: `view`, one of `data.views`; `kind`, one of the kinds; `layer` and `head`, indices from 0, and
// `head: null` for all heads; `token`, index of the query that is shown alone; `controls: false` hides everything but
// the picture. `onchange(state)` is called after a reader has chosen something.
//
// data = {
//   views: ["heads", "model", "neurons", "alignment", "rollout", "statistics"],  // in the order of their buttons
//   texts: { a: { tokens: ["[CLS]", …], segments: [0, …, 1], next: ["…"] } },
//       // segments: 0 for the first text of a pair and 1 for the second; optional
//       // next: for a decoder, the token that is written after each token that is read; optional
//   kinds: [{
//     kind: "encoder", name: "Encoder", queries: "a", keys: "a",  // names of texts
//     layers: [{ index: 0, heads: H, weights: (H, T, S),
//                queries: (H, T, D), keys: (H, S, D), scale: 0.125, softcap: null, bias: (1 or H, T, S) }],
//       // all but index, heads and weights are for the view of neurons alone; optional
//     rollout: [(T, S) for each layer],                            // for the view of that name; optional
//     statistics: [{ name: "entropy", unit: "bits", help: "a sentence", values: [[of each head] for each layer] }],
//   }],
// };
//
// An array of numbers is flat: an Array, a Float32Array, or `{ f4: base64 }` of 32-bit floats or `{ u2: base64 }` of
// 16-bit integers that stand for 0 to 1, both with the lowest byte first.
//
// Tokens enter the page as text nodes only. Colours are those variables of the page that attention.css lists.

(function () {
  "use strict";

  const SVG = "http://www.w3.org/2000/svg";
  const ROW = 26; // height of a token, in CSS pixels
  const LEAST = 0.01; // weights below have no line: they would be invisible
  const LEVELS = 20; // opacities of lines
  const HIDDEN = -1e4; // scores below are those of keys that a query does not see
  const NAMES = {
    heads: "Heads", model: "All heads", neurons: "Query and key", alignment: "Alignment", rollout: "Rollout",
    statistics: "Statistics",
  };
  const FILTERS = [["all", "All pairs"], ["00", "A → A"], ["01", "A → B"], ["10", "B → A"], ["11", "B → B"]];

  function make(tag, properties, ...children) {
    const { data = {}, aria = {}, style = {}, ...rest } = properties || {};
    const element = Object.assign(document.createElement(tag), rest);
    Object.assign(element.dataset, data);
    for (const [name, value] of Object.entries(aria)) element.setAttribute(`aria-${name}`, value);
    for (const [name, value] of Object.entries(style)) element.style.setProperty(name, value);
    element.append(...children);
    return element;
  }

  function shape(tag, attributes) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }

  /** Returns the numbers of an array of `data`; those in base64 are decoded once. */
  const decoded = new WeakMap();
  function numbers(array) {
    if (!array.f4 && !array.u2) return array;
    if (!decoded.has(array)) {
      const text = atob(array.f4 || array.u2);
      const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
      const view = new DataView(bytes.buffer);
      const size = array.f4 ? 4 : 2;
      const values = new Float32Array(bytes.length / size);
      for (let i = 0; i < values.length; i++) {
        values[i] = array.f4 ? view.getFloat32(4 * i, true) : view.getUint16(2 * i, true) / 65535;
      }
      decoded.set(array, values);
    }
    return decoded.get(array);
  }

  /** The colour of a head: its own hue, so that the heads of a layer can be told apart; attention.css has the rest. */
  function colour(head, heads) {
    return `hsl(${Math.round((360 * head) / heads + 228) % 360} var(--kf-saturation) var(--kf-lightness))`;
  }

  function shown(value, digits = 2) {
    return value.toFixed(digits).replace("-", "−");
  }

  function percent(share) {
    return share > 0 && share < 0.005 ? "<1 %" : `${Math.round(100 * share)} %`;
  }

  /** A token as readers see it: marks and codes for what has no ink. */
  function visible(token) {
    const marked = token.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replace(/^ +$/, (spaces) => "␣".repeat(spaces.length));
    const code = (character) => `\\u{${character.codePointAt(0).toString(16)}}`;
    return marked.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, code) || "∅";
  }

  class View {
    constructor(element, data, options) {
      this.data = data;
      this.onchange = options.onchange || (() => {});
      this.state = {
        view: data.views[0], kind: data.kinds[0].kind, layer: 0, heads: null, filter: "all", token: null, side: "queries",
        statistic: 0, controls: true,
      };
      this.root = make("div", { className: "kf-attention" });
      element.replaceChildren(this.root);
      this.dark = matchMedia("(prefers-color-scheme: dark)");
      this.redraw = () => this.draw();
      this.dark.addEventListener("change", this.redraw); // what a canvas shows has no variables
      this.show(options);
    }

    show(options) {
      const { head, onchange, ...rest } = options;
      Object.assign(this.state, rest);
      if (head !== undefined) this.state.heads = head === null ? null : new Set([head]);
      this.correct();
      this.draw();
    }

    remove() {
      this.dark.removeEventListener("change", this.redraw);
      this.root.remove();
    }

    change(part) {
      // A redraw replaces the element that has the focus; its successor has the same key.
      const focused = document.activeElement && this.root.contains(document.activeElement) ? document.activeElement.dataset.key : null;
      Object.assign(this.state, part);
      this.correct();
      this.draw();
      const next = focused && [...this.root.querySelectorAll("[data-key]")].find((element) => element.dataset.key === focused);
      if (next) next.focus({ preventScroll: true });
      this.onchange(this.state);
    }

    /** Makes the state one that the data can show. */
    correct() {
      const { state, data } = this;
      if (!data.views.includes(state.view)) state.view = data.views[0];
      const kinds = this.kindsOf(state.view);
      if (!kinds.some(({ kind }) => kind === state.kind)) state.kind = kinds[0].kind;
      state.layer = Math.max(0, Math.min(state.layer, this.kind.layers.length - 1));
      const { heads } = this.layer;
      if (state.heads) state.heads = new Set([...state.heads].filter((head) => head < heads));
      if (state.heads && !state.heads.size) state.heads = null;
      const count = this.text(state.side === "keys" ? "keys" : "queries").tokens.length;
      if (state.token !== null && state.token >= count) state.token = null;
      if (!this.hasPair) state.filter = "all";
    }

    kindsOf(view) {
      const has = {
        neurons: ({ layers }) => layers.some(({ queries }) => queries), alignment: ({ kind }) => kind === "cross",
        rollout: ({ rollout }) => rollout, statistics: ({ statistics }) => statistics,
      }[view];
      const kinds = has ? this.data.kinds.filter(has) : this.data.kinds;
      return kinds.length ? kinds : this.data.kinds;
    }

    get kind() { return this.data.kinds.find(({ kind }) => kind === this.state.kind); }
    get layer() { return this.kind.layers[this.state.layer]; }
    get hasPair() {
      const { segments } = this.text("queries");
      return this.kind.queries === this.kind.keys && Boolean(segments) && segments.includes(1);
    }

    text(side) { return this.data.texts[this.kind[side]]; }

    chosen() {
      const { heads } = this.layer;
      return [...Array(heads).keys()].filter((head) => !this.state.heads || this.state.heads.has(head));
    }

    /** Whether the filter shows the weights of a query for a key. */
    passes(query, key) {
      const { filter } = this.state;
      if (filter === "all") return true;
      const { segments } = this.text("queries");
      return segments[query] === Number(filter[0]) && segments[key] === Number(filter[1]);
    }

    draw() {
      const { state } = this;
      const parts = [];
      if (state.controls) {
        if (this.data.views.length > 1) parts.push(this.tabs());
        parts.push(this.controls());
      }
      const panel = make("div", { className: "kf-panel", data: { view: state.view } });
      this.root.replaceChildren(...parts, panel);
      this[state.view](panel);
    }

    tabs() {
      const bar = make("div", { className: "kf-tabs" });
      bar.setAttribute("role", "group");
      bar.setAttribute("aria-label", "View");
      bar.append(...this.data.views.map((view) => make("button", {
        type: "button", className: "kf-tab", data: { key: `view-${view}` }, aria: { pressed: this.state.view === view },
        // The last layer has seen all others.
        onclick: () => this.change({ view, token: null, ...(["alignment", "rollout"].includes(view) ? { layer: Infinity } : {}) }),
      }, NAMES[view])));
      return bar;
    }

    select(label, key, choices, value, change) {
      const select = make("select", { data: { key }, onchange: () => change(select.value) },
        ...choices.map(([option, name]) => make("option", { value: option, selected: String(option) === String(value) }, name)));
      return make("label", { className: "kf-field" }, make("span", {}, label), select);
    }

    controls() {
      const { state } = this;
      const bar = make("div", { className: "kf-controls" });
      const kinds = this.kindsOf(state.view);
      if (kinds.length > 1) {
        const choices = kinds.map(({ kind, name }) => [kind, name]);
        bar.append(this.select("Attention", "kind", choices, state.kind, (kind) => this.change({ kind, token: null })));
      }
      if (!["model", "statistics"].includes(state.view) && this.kind.layers.length > 1) {
        const choices = this.kind.layers.map(({ index }, i) => [i, `Layer ${index}`]);
        bar.append(this.select("Layer", "layer", choices, state.layer, (layer) => this.change({ layer: Number(layer) })));
      }
      if (state.view === "neurons") {
        const choices = [...Array(this.layer.heads).keys()].map((head) => [head, `Head ${head}`]);
        bar.append(this.select("Head", "head", choices, this.chosen()[0] || 0, (head) => this.change({ heads: new Set([Number(head)]) })));
      }
      if (this.hasPair && ["heads", "model"].includes(state.view)) {
        bar.append(this.select("Pairs of texts", "filter", FILTERS, state.filter, (filter) => this.change({ filter })));
      }
      if (state.view === "statistics") {
        const choices = this.kind.statistics.map(({ name }, i) => [i, name]);
        bar.append(this.select("Figure", "statistic", choices, state.statistic, (i) => this.change({ statistic: Number(i) })));
      }
      if (["heads", "alignment"].includes(state.view)) bar.append(this.headChips());
      bar.hidden = !bar.childElementCount;
      return bar;
    }

    headChips() {
      const { heads } = this.layer;
      const on = new Set(this.chosen());
      const all = on.size === heads;
      const chips = [...Array(heads).keys()].map((head) => make("button", {
        type: "button", className: "kf-chip", data: { key: `head-${head}` },
        style: { "--kf-head": colour(head, heads) }, aria: { pressed: on.has(head), label: `Head ${head}` },
        onclick: () => {
          // The first choice among all heads shows one of them alone; further ones add and remove.
          const next = all ? new Set([head]) : new Set(on);
          if (!all && !next.delete(head)) next.add(head);
          this.change({ heads: next.size === 0 || next.size === heads ? null : next });
        },
      }, String(head)));
      const every = make("button", {
        type: "button", className: "kf-chip kf-all", data: { key: "head-all" }, aria: { pressed: all },
        onclick: () => this.change({ heads: null }),
      }, "all");
      const group = make("div", { className: "kf-chips" }, every, ...chips);
      group.setAttribute("role", "group");
      group.setAttribute("aria-label", "Heads");
      return make("div", { className: "kf-field kf-heads" }, make("span", {}, "Heads"), group);
    }

    // ---- heads: two columns of tokens, a line for each weight ----

    heads(panel) {
      const { layer, state } = this;
      const [queries, keys] = [this.text("queries").tokens, this.text("keys").tokens];
      const [rows, columns] = [queries.length, keys.length];
      const weights = numbers(layer.weights);
      const heads = this.chosen();
      const at = (head, query, key) => weights[(head * rows + query) * columns + key];
      const mean = (query, key) => heads.reduce((sum, head) => sum + at(head, query, key), 0) / heads.length;
      const height = ROW * Math.max(rows, columns);
      const svg = shape("svg", { viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", class: "kf-lines", role: "img" });
      svg.setAttribute("aria-label", `Lines from ${rows} tokens to ${columns} tokens, the stronger the greater the weight`);
      svg.style.height = `${height}px`;
      const readout = make("p", { className: "kf-readout", aria: { live: "polite" } });
      const lists = {};
      let current = { token: state.token, side: state.side };

      const draw = () => {
        const { token, side } = current;
        svg.replaceChildren();
        heads.forEach((head, index) => {
          // The lines of several heads run beside each other, so that each has its colour.
          const shift = (index - (heads.length - 1) / 2) * Math.min(1.6, (ROW - 8) / heads.length);
          const paths = Array.from({ length: LEVELS + 1 }, () => []);
          for (let query = 0; query < rows; query++) {
            if (token !== null && side === "queries" && token !== query) continue;
            for (let key = 0; key < columns; key++) {
              if (token !== null && side === "keys" && token !== key) continue;
              const weight = at(head, query, key);
              if (weight < LEAST || !this.passes(query, key)) continue;
              const [from, to] = [query, key].map((row) => (ROW * (row + 0.5) + shift).toFixed(1));
              paths[Math.max(1, Math.round(weight * LEVELS))].push(`M0 ${from}L100 ${to}`);
            }
          }
          paths.forEach((lines, level) => {
            if (!lines.length) return;
            const path = shape("path", { d: lines.join(""), "stroke-opacity": level / LEVELS, "vector-effect": "non-scaling-stroke" });
            path.style.stroke = layer.heads === 1 ? "var(--kf-accent)" : colour(head, layer.heads);
            svg.append(path);
          });
        });
        for (const [name, list] of Object.entries(lists)) {
          const active = name === side ? token : null;
          [...list.children].forEach((item, index) => {
            const button = item.firstChild;
            button.classList.toggle("kf-active", index === active);
            button.setAttribute("aria-pressed", String(index === active));
            let share = 0;
            if (token !== null && name !== side) {
              const pair = side === "queries" ? [token, index] : [index, token];
              share = this.passes(...pair) ? mean(...pair) : 0;
            }
            button.style.setProperty("--kf-share", share.toFixed(3));
            button.lastChild.textContent = token !== null && name !== side && share >= 0.005 ? percent(share) : "";
          });
        }
        readout.replaceChildren(...this.sentence(token, side, mean, heads));
      };

      const column = (name, tokens) => {
        const list = make("ol", { className: `kf-tokens kf-${name}`, aria: { label: name === "queries" ? "From" : "To" } });
        const segments = this.text(name).segments;
        tokens.forEach((token, index) => {
          const dim = state.filter !== "all" && segments[index] !== Number(state.filter[name === "queries" ? 0 : 1]);
          const button = make("button", {
            type: "button", className: `kf-token${dim ? " kf-dim" : ""}`, title: token, data: { key: `${name}-${index}` },
            onclick: () => {
              const same = state.token === index && state.side === name;
              state.token = same ? null : index;
              state.side = name;
              current = { token: state.token, side: name };
              draw();
              this.onchange(state);
            },
            onpointerenter: (event) => { if (event.pointerType === "mouse") { current = { token: index, side: name }; draw(); } },
            onpointerleave: () => { current = { token: state.token, side: state.side }; draw(); },
          }, make("span", { className: "kf-word" }, visible(token)), make("span", { className: "kf-number" }));
          list.append(make("li", { className: segments && segments.includes(1) ? `kf-segment-${segments[index]}` : "" }, button));
        });
        lists[name] = list;
        return list;
      };

      panel.append(readout, make("div", { className: "kf-columns" }, column("queries", queries), svg, column("keys", keys)));
      draw();
    }

    /** What a token attends to, or is attended by, as a sentence. */
    sentence(token, side, mean, heads) {
      if (token === null) {
        const pair = this.hasPair ? " Tokens of text B are underlined." : "";
        return [document.createTextNode(`Point at a token, or choose one, to see its weights alone.${pair}`)];
      }
      const [from, to] = [this.text("queries").tokens, this.text("keys").tokens];
      const others = side === "queries" ? to : from;
      const shares = others.map((_, other) => {
        const pair = side === "queries" ? [token, other] : [other, token];
        return this.passes(...pair) ? mean(...pair) : 0;
      });
      const order = shares.map((_, i) => i).sort((a, b) => shares[b] - shares[a]).slice(0, 3);
      const parts = order.filter((i) => shares[i] >= 0.005).map((i) => `${visible(others[i])} ${percent(shares[i])}`);
      const verb = side === "queries" ? " attends to " : " is attended by ";
      const which = heads.length > 1 ? `, mean of ${heads.length} heads` : "";
      return [make("b", {}, visible((side === "queries" ? from : to)[token])), document.createTextNode(`${verb}${parts.join(", ") || "nothing"}${which}`)];
    }

    // ---- model: all heads as thumbnails ----

    model(panel) {
      const { kind, state } = this;
      const [rows, columns] = [this.text("queries").tokens.length, this.text("keys").tokens.length];
      const style = getComputedStyle(this.root);
      const ink = style.getPropertyValue("--kf-accent").trim();
      const grid = make("div", { className: "kf-thumbnails" });
      const most = Math.max(...kind.layers.map(({ heads }) => heads));
      grid.style.setProperty("--kf-heads", most);
      kind.layers.forEach((layer, index) => {
        const line = make("div", { className: "kf-layer" }, make("span", { className: "kf-label" }, `Layer ${layer.index}`));
        const weights = numbers(layer.weights);
        for (let head = 0; head < layer.heads; head++) {
          const canvas = make("canvas", { width: 112, height: 112, aria: { hidden: "true" } });
          this.thumbnail(canvas, weights.subarray ? weights.subarray(head * rows * columns, (head + 1) * rows * columns)
            : weights.slice(head * rows * columns, (head + 1) * rows * columns), rows, columns, ink);
          const on = state.heads && state.heads.size === 1 && state.heads.has(head) && state.layer === index;
          line.append(make("button", {
            type: "button", className: "kf-thumbnail", data: { key: `thumbnail-${index}-${head}` },
            title: `Layer ${layer.index}, head ${head}`,
            aria: { label: `Layer ${layer.index}, head ${head}`, pressed: Boolean(on) },
            onclick: () => this.change(on ? { heads: null } : { layer: index, heads: new Set([head]), token: null }),
          }, canvas));
        }
        grid.append(line);
      });
      panel.append(make("div", { className: "kf-scroll", tabIndex: 0, role: "region", ariaLabel: "All heads" }, grid));
      if (state.heads && state.heads.size === 1) {
        const [head] = state.heads;
        const detail = make("div", { className: "kf-detail" }, make("p", { className: "kf-title" }, `Layer ${this.layer.index}, head ${head}`));
        panel.append(detail);
        this.heads(detail);
      } else {
        panel.append(make("p", { className: "kf-readout" }, "Choose a head to see its weights."));
      }
    }

    thumbnail(canvas, weights, rows, columns, ink) {
      const context = canvas.getContext("2d");
      const { width, height } = canvas;
      const scale = height / Math.max(rows, columns);
      context.strokeStyle = ink;
      context.lineWidth = Math.max(1, Math.min(2.5, scale / 3));
      for (let query = 0; query < rows; query++) {
        for (let key = 0; key < columns; key++) {
          const weight = weights[query * columns + key];
          if (weight < 0.04 || !this.passes(query, key)) continue;
          context.globalAlpha = Math.min(1, weight);
          context.beginPath();
          context.moveTo(6, (query + 0.5) * scale);
          context.lineTo(width - 6, (key + 0.5) * scale);
          context.stroke();
        }
      }
    }

    // ---- neurons: query, key, their product, the score and its share of the softmax ----

    neurons(panel) {
      const { layer, state } = this;
      if (!layer.queries) {
        panel.append(make("p", { className: "kf-readout" }, "This page has no queries and keys of this layer."));
        return;
      }
      const [from, to] = [this.text("queries").tokens, this.text("keys").tokens];
      const head = this.chosen()[0] || 0;
      const token = state.token !== null && state.side === "queries" ? state.token : Math.min(1, from.length - 1);
      const [queries, keys, weights] = [numbers(layer.queries), numbers(layer.keys), numbers(layer.weights)];
      const size = queries.length / (layer.heads * from.length);
      const query = queries.slice((head * from.length + token) * size, (head * from.length + token + 1) * size);
      const bias = layer.bias ? numbers(layer.bias) : null;
      const biasHead = bias && bias.length > from.length * to.length ? head : 0;
      const ofKey = (key) => keys.slice((head * to.length + key) * size, (head * to.length + key + 1) * size);
      const rows = to.map((word, key) => {
        const vector = ofKey(key);
        const product = Array.from(vector, (value, i) => value * query[i]);
        let score = product.reduce((sum, value) => sum + value, 0) * layer.scale;
        if (layer.softcap) score = layer.softcap * Math.tanh(score / layer.softcap);
        const added = bias ? bias[(biasHead * from.length + token) * to.length + key] : 0;
        return { word, key, vector, product, score, added, weight: weights[(head * from.length + token) * to.length + key] };
      });
      const seen = rows.filter(({ added }) => added > HIDDEN);
      const largest = (vectors) => Math.max(1e-6, ...vectors.map((vector) => Math.max(...Array.from(vector, Math.abs))));
      const limits = { vector: largest([query, ...seen.map(({ vector }) => vector)]), product: largest(seen.map(({ product }) => product)) };
      const hasBias = seen.some(({ added }) => Math.abs(added) > 1e-6);
      const picker = this.select("Query token", "token", from.map((word, i) => [i, `${i}: ${visible(word)}`]), token,
        (value) => this.change({ token: Number(value), side: "queries" }));
      const scale = shown(layer.scale, 3);
      const formula = `score = ${layer.scale === 1 ? "" : `${scale} × `}q·k${layer.softcap ? `, limited to ±${layer.softcap}` : ""}${hasBias ? " + bias of the position" : ""}`;
      panel.append(make("div", { className: "kf-query" }, picker,
        make("div", { className: "kf-field" }, make("span", {}, `query q, ${size} entries`), this.strip(query, limits.vector, "Query"))));
      const head_row = ["key", "k", "q × k", hasBias ? "q·k + bias" : "score", "softmax"];
      const body = rows.map(({ word, vector, product, score, added, weight }) => {
        const hidden = added <= HIDDEN;
        return make("tr", { className: hidden ? "kf-unseen" : "" },
          make("th", { scope: "row", title: word }, visible(word)),
          make("td", {}, this.strip(vector, limits.vector, "Key")),
          make("td", {}, this.strip(product, limits.product, "Product")),
          make("td", { className: "kf-figure" }, hidden ? "hidden" : shown(score + added)),
          make("td", { className: "kf-figure kf-share" }, shown(weight), make("span", { className: "kf-bar", style: { "--kf-share": weight.toFixed(4) } })));
      });
      const table = make("table", { className: "kf-neurons" },
        make("thead", {}, make("tr", {}, ...head_row.map((name) => make("th", { scope: "col" }, name)))), make("tbody", {}, ...body));
      panel.append(make("div", { className: "kf-scroll", tabIndex: 0, role: "region", ariaLabel: "Keys" }, table),
        make("p", { className: "kf-readout" }, `${formula}. Blue is positive, orange negative; the softmax of the scores is the weight.`));
    }

    /** A row of cells, one for each entry of a vector. */
    strip(vector, limit, label) {
      const canvas = make("canvas", { className: "kf-strip", width: vector.length, height: 1 });
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", label);
      const style = getComputedStyle(this.root);
      const context = canvas.getContext("2d");
      const [positive, negative] = ["--kf-positive", "--kf-negative"].map((name) => style.getPropertyValue(name).trim());
      vector.forEach((value, i) => {
        context.globalAlpha = Math.min(1, Math.abs(value) / limit);
        context.fillStyle = value > 0 ? positive : negative;
        context.fillRect(i, 0, 1, 1);
      });
      return canvas;
    }

    // ---- matrices: alignment and rollout ----

    alignment(panel) {
      const { layer } = this;
      const target = this.text("queries");
      const [rows, columns] = [target.tokens.length, this.text("keys").tokens.length];
      const weights = numbers(layer.weights);
      const heads = this.chosen();
      const mean = (row, column) => heads.reduce((sum, head) => sum + weights[(head * rows + row) * columns + column], 0) / heads.length;
      const which = heads.length === 1 ? `head ${heads[0]}` : `mean of ${heads.length} heads`;
      const words = target.next ? "token that is written" : "token that is read";
      this.matrix(panel, target.next || target.tokens, this.text("keys").tokens, mean,
        `Each row is a ${words}; each column a token of the source. Layer ${layer.index}, ${which}.`);
    }

    rollout(panel) {
      const { kind, state } = this;
      const values = numbers(kind.rollout[state.layer]);
      const columns = this.text("keys").tokens.length;
      this.matrix(panel, this.text("queries").tokens, this.text("keys").tokens, (row, column) => values[row * columns + column],
        `How much of each token (column) is in the state of each token (row) after layer ${this.layer.index}, if half of a state comes from attention and half from the layer before.`);
    }

    matrix(panel, rowTokens, columnTokens, at, note) {
      const style = getComputedStyle(this.root);
      const ink = style.getPropertyValue("--kf-accent").trim();
      const cell = 22;
      const canvas = make("canvas", { width: columnTokens.length * cell, height: rowTokens.length * cell, className: "kf-matrix" });
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", note);
      const context = canvas.getContext("2d");
      let most = 0;
      rowTokens.forEach((_, row) => columnTokens.forEach((__, column) => { most = Math.max(most, at(row, column)); }));
      rowTokens.forEach((_, row) => columnTokens.forEach((__, column) => {
        context.globalAlpha = at(row, column) / (most || 1);
        context.fillStyle = ink;
        context.fillRect(column * cell + 0.5, row * cell + 0.5, cell - 1, cell - 1);
      }));
      const readout = make("p", { className: "kf-readout", aria: { live: "polite" } }, note);
      canvas.onpointermove = (event) => {
        const box = canvas.getBoundingClientRect();
        const [column, row] = [Math.floor((event.clientX - box.left) / box.width * columnTokens.length), Math.floor((event.clientY - box.top) / box.height * rowTokens.length)];
        if (!(row in rowTokens) || !(column in columnTokens)) return;
        readout.replaceChildren(make("b", {}, visible(rowTokens[row])), " → ", make("b", {}, visible(columnTokens[column])), ` ${shown(at(row, column), 3)}`);
      };
      canvas.onpointerleave = () => { readout.textContent = note; };
      const heads = make("div", { className: "kf-column-heads" }, ...columnTokens.map((token) => make("span", { title: token }, make("span", {}, visible(token)))));
      const names = make("div", { className: "kf-row-heads" }, ...rowTokens.map((token) => make("span", { title: token }, visible(token))));
      const grid = make("div", { className: "kf-grid" }, make("span", {}), heads, names, canvas);
      grid.style.setProperty("--kf-cell", `${cell}px`);
      grid.style.setProperty("--kf-columns", columnTokens.length);
      grid.style.setProperty("--kf-longest", Math.min(14, Math.max(...columnTokens.map((token) => visible(token).length))));
      panel.append(readout, make("div", { className: "kf-scroll", tabIndex: 0, role: "region", ariaLabel: "Matrix" }, grid));
    }

    // ---- statistics: a figure of each head ----

    statistics(panel) {
      const { kind, state } = this;
      const { name, unit, values, help } = kind.statistics[state.statistic] || kind.statistics[0];
      const known = values.flat().filter((value) => value !== null);
      const [low, high] = [Math.min(...known), Math.max(...known)];
      const most = Math.max(...values.map((row) => row.length));
      const digits = unit === "%" ? 0 : high < 10 ? 2 : 1;
      const head = make("tr", {}, make("td", {}), ...[...Array(most).keys()].map((i) => make("th", { scope: "col" }, `Head ${i}`)), make("th", { scope: "col" }, "mean"));
      const number = (value) => (value === null ? "–" : `${shown(unit === "%" ? 100 * value : value, digits)}`);
      const body = values.map((row, i) => {
        const rest = row.filter((value) => value !== null);
        const mean = rest.length ? rest.reduce((a, b) => a + b, 0) / rest.length : null;
        return make("tr", {}, make("th", { scope: "row" }, `Layer ${kind.layers[i].index}`),
          ...row.map((value) => make("td", { className: "kf-figure kf-tint", style: { "--kf-share": value === null || high === low ? "0" : ((value - low) / (high - low)).toFixed(3) } }, number(value))),
          ...Array.from({ length: most - row.length }, () => make("td", {})), make("td", { className: "kf-figure" }, number(mean)));
      });
      panel.append(make("p", { className: "kf-readout" }, help || name),
        make("div", { className: "kf-scroll", tabIndex: 0, role: "region", ariaLabel: name },
          make("table", { className: "kf-statistics" }, make("thead", {}, head), make("tbody", {}, ...body))));
    }
  }

  globalThis.KerasformerAttention = {
    mount: (element, data, options = {}) => new View(element, data, options),
  };
})();
