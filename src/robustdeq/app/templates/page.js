"use strict";
const $ = (id) => document.getElementById(id), every = (s, f) => document.querySelectorAll(s).forEach(f);
const data = JSON.parse($("data").textContent), live = Boolean($("form"));

let at = null;  // the state that the slider was moved to
const linked = (link) => { const query = new URLSearchParams(link.slice(1)); at ? query.set("at", at) : query.delete("at"); return "#" + query; };
const remember = () => history.replaceState(null, "", live ? $("permalink").href : linked(location.hash));  // a link to here holds the slider

function show(t) {  // everything that follows the slider
  every(".at", (e) => { const [x, y] = e.dataset.at.split(";")[t - 1].split(","); e.setAttribute("transform", `translate(${x},${y})`); });
  const pictures = [...document.querySelectorAll("[data-since]")], acting = pictures.filter((e) => e.dataset.since <= t).pop();
  pictures.forEach((e) => e.classList.toggle("acting", e === acting));
  $("slider").value = t;
  at = String(t) === $("slider").defaultValue ? null : t;  // the usual state needs no words in a link
  $("permalink").href = linked($("permalink").getAttribute("href"));
  $("now").textContent = `z[${t}]`;
  $("says").replaceChildren(...JSON.parse($("states").textContent).flatMap(([name, words, answers]) => {
    const part = document.createElement("span"), answer = document.createElement("b");
    part.className = name; part.textContent = `${words}: `;
    answer.textContent = answers[t - 1][0]; answer.className = answers[t - 1][1] ? "" : "bad";
    return [part, answer, " \u00a0 "];
  }));
}
function shown() {  // after a view was put into the page
  if (!$("slider")) return;
  $("slider").oninput = (e) => show(Number(e.target.value));
  $("slider").onchange = remember;
  every(".cell[data-column]", (e) => { e.onclick = () => { show(Number(e.dataset.column) + 1); remember(); }; });
  show(Math.min(Math.max(1, at || Number($("slider").value)), Number($("slider").max)));
}
const read = () => { const query = new URLSearchParams(location.hash.slice(1)); at = Number(query.get("at")) || null; query.delete("at"); return Object.fromEntries(query); };
read();
shown();
if (live) explore();

function explore() {
  document.body.classList.add("live");
  const form = $("form"), options = data.options, defaults = options.defaults;
  let current = {}, first = 0, count = 0, running = null, turn = 0;
  const post = (path, body, signal) => fetch(path, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body), signal});
  const words = (select, pairs) => select.replaceChildren(...pairs.map(([value, text]) => new Option(text, value)));
  const problem = (text) => { $("problem").hidden = !text; $("problem").textContent = text; };
  for (const [name, pairs] of Object.entries(options.choices)) {
    const choice = document.querySelector(`[data-name=${name}]`);
    if (!choice) { words(form.elements[name], pairs); continue; }
    choice.replaceChildren(...pairs.map(([value, text]) => {
      const button = document.createElement("button");
      button.type = "button"; button.textContent = text; button.value = value; button.onclick = () => go({[name]: value});
      return button;
    }));
  }
  if (matchMedia("(max-width: 46rem)").matches) document.querySelector(".controls").open = false;

  const link = (values) => new URLSearchParams(Object.entries(values).filter(([k, v]) => k === "model" || (v !== null && v !== "" && String(v) !== String(defaults[k] ?? "")))).toString();
  function go(changes) {
    const values = {...current, ...changes};
    if (changes.model && changes.model !== current.model) for (const name of ["image", "label", "eps", "state"]) delete values[name];
    for (const kind of ["attack", "defence"]) if (kind in changes) for (const name in values) if (name.startsWith(kind + ".")) delete values[name];
    if ("image" in changes && changes.image !== current.image) delete values.label;
    if ("model" in changes) at = null;
    const hash = linked("#" + link(values));
    if (hash === location.hash) look(); else location.hash = hash;
  }
  form.onchange = (e) => { if (e.target.name) go({[e.target.name]: e.target.value}); };
  $("cancel").onclick = () => running && running.abort();
  onhashchange = look;

  async function look() {
    if (running) running.abort();
    const own = running = new AbortController(), mine = ++turn;
    current = location.hash.length > 1 ? read() : {...data.case};
    fill(); problem("");
    const late = setTimeout(() => { $("busy").hidden = false; }, 400);
    $("view").classList.add("old");
    try {
      const reader = (await post("view", current, own.signal)).body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const {done, value} = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) if (line) heard(JSON.parse(line));
      }
    } catch (error) {
      if (mine === turn) problem(error.name === "AbortError" ? "Cancelled." : "The explorer does not answer: does it still run?");
    }
    clearTimeout(late);
    if (mine === turn) { $("busy").hidden = true; $("view").classList.remove("old"); running = null; document.body.dataset.turn = mine; }
  }
  function heard(message) {
    if (message.progress) {
      const [words, done, total] = message.progress;
      $("doing").textContent = words; done ? $("bar").value = done / total : $("bar").removeAttribute("value");
    } else if (message.error) {
      problem(message.error);
    } else {
      current = message.case;
      Object.assign(options, {images: message.images, states: message.states, classes: message.classes, size: message.size, eps: message.eps});
      $("view").innerHTML = message.html;
      $("permalink").href = "#" + message.query;
      const kept = $("kept"), save = $("save"), seen = message.case;  // of this view: answers come late, and the next view may be there
      $("keep").onclick = async () => { const answer = await (await post("keep", seen)).json(); kept.textContent = answer.error || answer.kept; };
      post("export", seen).then((a) => a.text()).then((text) => { save.href = "data:text/html;charset=utf-8," + encodeURIComponent(text); });
      count = message.images;
      const chosen = /^test:(\d+)$/.exec(current.image);
      if (chosen) first = Math.floor(chosen[1] / 10) * 10;
      fill(); thumbs(); shown();
    }
  }
  function fill() {
    if (options.states) words(form.elements.state, [["", `z[${Math.min(8, options.states)}] (usual)`], ...Array.from({length: options.states}, (_, k) => [String(k + 1), `z[${k + 1}]`]), ["final", "final"]]);
    else words(form.elements.state, [["", "its output"]]);
    words(form.elements.label, [["", "as known or predicted"], ...(options.classes || []).map((c, k) => [String(k), c])]);
    const values = {...defaults, ...current};
    for (const element of form.elements) if (element.name) element.value = values[element.name] ?? "";
    form.elements.eps.placeholder = options.eps || "";
    every(".choice", (e) => [...e.children].forEach((b) => b.setAttribute("aria-pressed", String(values[e.dataset.name] === b.value))));
    every("[data-when]", (e) => { const [, name, sign, allowed] = /^(\w+)([=!])(.*)$/.exec(e.dataset.when); e.hidden = allowed.split(",").includes(values[name]) !== (sign === "="); });
  }
  let offered = "";
  async function thumbs() {
    const wanted = JSON.stringify([current.model, first]);
    if (wanted !== offered) {
      offered = wanted;
      const answer = await (await post("thumbs", {model: current.model, first})).json();
      $("thumbs").replaceChildren(...answer.images.map(([source, picture, label]) => {
        const button = document.createElement("button"), image = new Image();
        image.src = picture; image.alt = label; button.title = label; button.type = "button"; button.value = source;
        button.onclick = () => go({image: source}); button.append(image);
        return button;
      }));
      if (answer.note) { const p = document.createElement("p"); p.textContent = answer.note; $("thumbs").append(p); }
    }
    every("#thumbs button", (b) => b.setAttribute("aria-pressed", String(b.value === current.image)));
    for (const id of ["less", "more", "random"]) $(id).disabled = !count;
  }
  const page = (by) => { first = Math.max(0, Math.min(first + by, Math.floor((count - 1) / 10) * 10)); thumbs(); };
  $("less").onclick = () => page(-10);
  $("more").onclick = () => page(10);
  $("random").onclick = () => go({image: `test:${Math.floor(Math.random() * count)}`});

  $("file").onchange = async (e) => {
    const [file] = e.target.files;
    e.target.value = "";
    if (!file) return;
    if (file.size > options.limit) return problem(`${file.name} has ${(file.size / 1e6).toFixed(0)} MB; at most ${options.limit / 1e6} MB are taken: scale it down first`);
    const answer = await (await fetch("upload", {method: "POST", headers: {"Content-Type": "application/octet-stream", "X-Model": encodeURIComponent(current.model), "X-Name": encodeURIComponent(file.name)}, body: file})).json();
    answer.error ? problem(answer.error) : go({image: answer.image});
  };

  const canvas = $("canvas"), pen = canvas.getContext("2d");
  const wipe = () => { pen.fillStyle = "#000"; pen.fillRect(0, 0, 192, 192); };
  let down = false;
  const stroke = (e) => {
    const box = canvas.getBoundingClientRect(), x = (e.clientX - box.x) * 192 / box.width, y = (e.clientY - box.y) * 192 / box.height;
    if (e.type === "pointerdown") { down = true; pen.beginPath(); pen.moveTo(x, y); canvas.setPointerCapture(e.pointerId); }
    if (!down) return;
    Object.assign(pen, {lineWidth: 26, lineCap: "round", lineJoin: "round", strokeStyle: "#fff"});
    pen.lineTo(x, y); pen.stroke();
  };
  canvas.onpointerdown = canvas.onpointermove = stroke;
  canvas.onpointerup = canvas.onpointercancel = () => { down = false; };
  wipe();
  $("pen").onclick = () => { $("drawing").hidden = !$("drawing").hidden; };
  $("wipe").onclick = wipe;
  $("use").onclick = () => {  // at the model's size, every pixel the mean of what it covers
    const [height, width] = options.size, small = document.createElement("canvas"), all = pen.getImageData(0, 0, 192, 192).data;
    small.width = width; small.height = height;
    const to = small.getContext("2d"), pixels = to.createImageData(width, height), sums = new Float64Array(width * height), covered = new Float64Array(width * height);
    for (let y = 0; y < 192; y++) for (let x = 0; x < 192; x++) { const k = Math.floor(y * height / 192) * width + Math.floor(x * width / 192); sums[k] += all[4 * (192 * y + x)]; covered[k] += 1; }
    sums.forEach((sum, k) => { const v = sum / covered[k]; pixels.data.set([v, v, v, 255], 4 * k); });
    to.putImageData(pixels, 0, 0);
    go({image: small.toDataURL("image/png")});
  };
  look();
}
