// A timeline of records: bars of what was allowed, refused and failed.

import uPlot from "/vendor/uPlot.js";
import { color } from "/theme.js";
import { count, moment } from "/dom.js";

export class Timeline {
  constructor(place) {
    this.place = place;
    place.setAttribute("role", "img");
    this.again = () => this.data && this.draw(this.data);
    document.addEventListener("themed", this.again);
    this.watch = new ResizeObserver(() => {
      if (this.plot && Math.abs(place.clientWidth - this.plot.width) > 1) this.plot.setSize({ width: place.clientWidth, height: 110 });
    });
    this.watch.observe(place);
  }

  // draw stacks the three counts: each series holds itself and those below it.
  draw(t) {
    this.data = t;
    this.plot?.destroy();
    this.plot = undefined;
    const sum = (list) => list.reduce((a, b) => a + b, 0);
    this.place.setAttribute("aria-label", `Records over time: ${count(sum(t.allowed))} allowed, ${count(sum(t.refused))} refused, ${count(sum(t.failed))} failed`);
    this.place.hidden = t.allowed.length === 0;
    if (this.place.hidden) return;
    const from = Date.parse(t.from) / 1000;
    const xs = t.allowed.map((_, i) => from + (i * t.step_ms) / 1000);
    const failed = t.failed;
    const refused = t.refused.map((n, i) => n + failed[i]);
    const all = t.allowed.map((n, i) => n + refused[i]);
    const covers = t.allowed.length * t.step_ms;
    const [begin, end] = covers > 86400000 ? [5, 16] : covers > 600000 ? [11, 16] : [11, 19];
    const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui", size: 22 };
    const bars = uPlot.paths.bars({ size: [0.9, 60], align: 1 });
    const one = (label, of) => ({ label, stroke: color(of), fill: color(of), width: 0, paths: bars, points: { show: false } });
    this.plot = new uPlot({
      width: Math.max(this.place.clientWidth, 60), height: 110, legend: { show: false }, cursor: { show: false }, select: { show: false },
      padding: [6, 28, 0, 0], axes: [{ ...axis, space: 100, values: (_, list) => list.map((at) => moment(at * 1000).slice(begin, end)) }, { ...axis, size: 48, space: 28 }],
      scales: { x: { time: true, range: () => [xs[0], xs.at(-1) + t.step_ms / 1000] }, y: { range: (_, min, max) => [0, Math.max(max * 1.1, 4)] } },
      series: [{}, one("allowed", "--accent"), one("refused", "--bad"), one("failed", "--warn")],
    }, [xs, all, refused, failed], this.place);
  }

  end() {
    document.removeEventListener("themed", this.again);
    this.watch.disconnect();
    this.plot?.destroy();
  }
}
