// node variants.mjs INPUT FOLDER WIDTHS: makes a JPEG and a WebP of each width in two ways and prints the seconds each
// takes, in a process that is warm: {"clone": …, "raw": …}. `clone` is the documented way, one pipeline that is cloned
// (libvips decodes again for each); `raw` decodes once to the largest size and goes on from its pixels.
import { mkdirSync } from "node:fs";
import sharp from "sharp";

const [input, folder, list] = process.argv.slice(2);
const widths = list.split(",").map(Number);
mkdirSync(folder, { recursive: true });
sharp.cache(false);

const save = (image, width) => [
  image.clone().jpeg({ quality: 80, progressive: true }).toFile(`${folder}/${width}.jpg`),
  image.clone().webp({ quality: 80, effort: 4 }).toFile(`${folder}/${width}.webp`),
];
const variants = (source) =>
  Promise.all(widths.flatMap((width) => save(source.clone().resize({ width, withoutEnlargement: true }), width)));

const chains = {
  clone: () => variants(sharp(input).rotate()),
  raw: async () => {
    const largest = sharp(input).rotate().resize({ width: Math.max(...widths), withoutEnlargement: true });
    const { data, info } = await largest.raw().toBuffer({ resolveWithObject: true });
    const { width, height, channels } = info;
    await variants(sharp(data, { raw: { width, height, channels } }));
  },
};

const seconds = {};
for (const [name, chain] of Object.entries(chains)) {
  for (const threads of [1, 2]) {
    sharp.concurrency(threads);
    await chain();
    const started = performance.now();
    await chain();
    seconds[`${name}_${threads}`] = (performance.now() - started) / 1000;
  }
}
console.log(JSON.stringify(seconds));
