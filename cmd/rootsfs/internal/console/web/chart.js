// Small charts of a speed over the last minutes, drawn by uPlot.

import uPlot from "/vendor/uPlot.js";
import { color } from "/theme.js";
import { clock } from "/dom.js";

// Chart is one of them. lines are {label, color: a custom property, pick}.
export class Chart {
  constructor(place, label, lines, show, height = 90, axes = true) {
    Object.assign(this, { place, label, lines, show, height, axes });
    place.setAttribute("role", "img");
    this.make();
    this.again = () => this.make();
    document.addEventListener("themed", this.again);
    this.watch = new ResizeObserver(() => {
      const width = this.place.clientWidth;
      if (width > 0 && Math.abs(width - this.plot.width) > 1) this.plot.setSize({ width, height: this.height });
    });
    this.watch.observe(place);
  }

  make() {
    this.plot?.destroy();
    const ink = color("--soft");
    const grid = { stroke: color("--line"), width: 1 };
    const axis = { stroke: ink, grid, ticks: { show: false }, font: "11px system-ui", size: 22 };
    this.plot = new uPlot({
      width: Math.max(this.place.clientWidth, 60), height: this.height,
      legend: { show: false }, cursor: { show: false }, select: { show: false },
      padding: this.axes ? [6, 28, 0, 0] : [2, 0, 2, 0],
      scales: { x: { time: true }, y: { range: (_, min, max) => [0, Math.max(max * 1.1, 4)] } },
      axes: this.axes
        ? [{ ...axis, space: 90, values: (_, list) => list.map((at) => clock(at * 1000)) }, { ...axis, size: 58, space: 28, values: (_, list) => list.map((v) => this.show(v)) }]
        : [{ show: false }, { show: false }],
      series: [{}, ...this.lines.map((l) => ({ label: l.label, stroke: color(l.color), width: 1.5, fill: color(l.color, 0.13), points: { show: false } }))],
    }, this.data ?? [[], ...this.lines.map(() => [])], this.place);
  }

  // draw takes times in milliseconds and the speeds that belong to them.
  draw(times, rates) {
    this.data = [times.map((at) => at / 1000), ...this.lines.map((l) => rates.map(l.pick))];
    this.plot.setData(this.data);
    const now = rates.at(-1);
    const said = this.lines.map((l) => `${l.label} ${this.show(now ? l.pick(now) : 0)}`).join(", ");
    const label = `${this.label}: now ${said}`;
    if (this.place.getAttribute("aria-label") !== label) this.place.setAttribute("aria-label", label);
  }

  end() {
    document.removeEventListener("themed", this.again);
    this.watch.disconnect();
    this.plot.destroy();
  }
}
