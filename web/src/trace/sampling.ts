// What of a distribution is left to draw from: temperature, top-k, top-p, min-p, each of what those before it have left
// (the order of headway's own chain).

export interface Settings {
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
}

export interface Entry {
  id: number;
  plain: number; // the model's own probability
  left: number; // the probability to be drawn, 0 for what is cut off
}

function softmax(logits: ArrayLike<number>, over = 1): Float64Array {
  let most = -Infinity;
  for (let i = 0; i < logits.length; i++) if (logits[i] > most) most = logits[i];
  const result = new Float64Array(logits.length);
  let sum = 0;
  for (let i = 0; i < logits.length; i++) sum += result[i] = Math.exp((logits[i] - most) / over);
  for (let i = 0; i < result.length; i++) result[i] /= sum;
  return result;
}

/** Every entry of a vocabulary, likeliest first. */
export function drawn(logits: ArrayLike<number>, { temperature, topK, topP, minP }: Settings): Entry[] {
  const plain = softmax(logits);
  const order = Array.from(plain, (_, id) => id).sort((a, b) => logits[b] - logits[a] || a - b);
  if (temperature === 0) return order.map((id, rank) => ({ id, plain: plain[id], left: rank === 0 ? 1 : 0 }));
  const warm = softmax(logits, temperature);
  let count = topK > 0 ? Math.min(topK, order.length) : order.length;
  // What equals the least of the k stays.
  while (topK > 0 && count < order.length && logits[order[count]] === logits[order[count - 1]]) count++;
  const mass = (among: number) => order.slice(0, among).reduce((sum, id) => sum + warm[id], 0);
  if (topP < 1) {
    const whole = mass(count);
    let before = 0;
    let kept = 0;
    // An entry stays while those before it do not yet have the share.
    while (kept < count && before < topP * whole) before += warm[order[kept++]];
    count = Math.max(1, kept);
  }
  if (minP > 0) {
    const least = minP * warm[order[0]];
    while (count > 1 && warm[order[count - 1]] < least) count--;
  }
  const whole = mass(count);
  return order.map((id, rank) => ({ id, plain: plain[id], left: rank < count ? warm[id] / whole : 0 }));
}
