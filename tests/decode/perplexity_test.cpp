// The loss of a text whose tokens come one by one, as they do while an answer is drawn, beside that of one whole pass.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "lora/decode/session.hpp"
#include "lora/instantiate.hpp"
#include "support/decoding.hpp"
#include "support/random_gguf.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace perplexity_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;

/// −log p of a token.
double loss_of(std::span<const float> logits, std::int32_t token) {
  const double top = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  return top + std::log(sum) - static_cast<double>(logits[static_cast<std::size_t>(token)]);
}

/// Of all tokens but the first: the mean of their losses, and of what steps make of them.
struct Losses {
  double whole = 0, stepwise = 0;
  double apart = 0;  // root mean square of the difference, by token
  double size = 0;   // and of the whole pass's logits
};

Losses losses_of(DType dtype, const Tokens& text) {
  const RandomModel shape{
      .family = "llama", .hidden = 256, .ffn = 512, .heads = 4, .kv_heads = 2, .head_dim = 64, .tied = true};
  const TempFolder folder;
  write_gguf(folder / "m.gguf", shape, random_tensors(shape), dtype);
  D dev(1);
  model::Decoder<D, float> decoder(dev, model::Source::open(folder / "m.gguf"));
  const auto whole = logits_of(dev, decoder, text);
  decode::Session<D, float> session(dev, decoder);
  const auto sequence = session.enter();
  Losses mean;
  const std::size_t width = whole.size() / text.size();
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    session.append(sequence, std::span(text).subspan(i, 1));
    const auto next = session.step();
    const double once = loss_of(std::span(whole).subspan(i * width, width), text[i + 1]);
    const double stepped = loss_of(next.row(0), text[i + 1]);
    mean.whole += once;
    mean.stepwise += stepped;
    mean.apart += (stepped - once) * (stepped - once);
  }
  const auto count = static_cast<double>(text.size() - 1);
  mean.whole /= count;
  mean.stepwise /= count;
  mean.apart = std::sqrt(mean.apart / count);
  mean.size =
      std::sqrt(std::inner_product(whole.begin(), whole.end(), whole.begin(), 0.0) / static_cast<double>(whole.size()));
  return mean;
}

Tokens some_text(std::int32_t length) {
  Tokens text;
  for (std::int32_t i = 0; i < length; ++i) text.push_back((i * i + 5 * i + 3) % 61);
  return text;
}

}  // namespace

TEST_CASE("perplexity: of a text read token by token it is that of a whole pass, of every type of weights") {
  const Tokens text = some_text(60);
  const auto count = static_cast<double>(text.size() - 1);
  // A loss moves by at most √2 of what moves its row of logits in their root mean square: that is the slope's length.
  // Fifteen products in a row add up at most 512 terms in another order.
  const double sums = std::sqrt(15.0 * 512) * 0x1p-24;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    CAPTURE(name_of(dtype));
    const Losses found = losses_of(dtype, text);
    CHECK(found.apart < std::sqrt(2) * sums * found.size);  // 1.2e-6 of the loss
    CHECK(std::abs(found.stepwise - found.whole) <= found.apart);
  }
  // Against blocks x is rounded to 8 bits, as session_test says: independently in each token, so that of the mean the
  // slope's part is less by the root of their number. What stays is the curve's part, half a row's variance.
  const double rounded = 14 * 3.0 / 254 / std::sqrt(12);
  for (const DType dtype : {DType::q8_0, DType::q4_0, DType::q4_k}) {
    CAPTURE(name_of(dtype));
    const Losses found = losses_of(dtype, text);
    const double row = rounded * found.size;
    CHECK(found.apart < std::sqrt(2) * row);
    CHECK(found.apart > 1e-4);  // the steps' products are others
    CHECK(std::abs(found.stepwise - found.whole) < std::sqrt(2 / count) * row + row * row / 2);
  }
}

}  // namespace perplexity_test
