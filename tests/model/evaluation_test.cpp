// The loss of labelled rows: in parts of the head's rows, and given up where a stop is asked for.

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "lora/core/profile.hpp"
#include "lora/data/batch.hpp"
#include "lora/instantiate.hpp"
#include "lora/model/decoder.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace evaluation_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;

struct Subject {
  TempFolder folder;
  D dev{1};
  model::Source source;
  model::Decoder<D, float> decoder;

  Subject() : source(open(folder)), decoder(dev, source) {}
  static model::Source open(const TempFolder& folder) {
    write_random_model(folder.path(), {});
    return model::Source::open(folder.path());
  }

  /// Sequences of 400 tokens, the first of them `from`.
  static data::Batch batch_of(Index from, Index count) {
    data::Batch batch;
    for (Index sequence = from; sequence < from + count; ++sequence) {
      data::Example example;
      for (Index i = 0; i < 400; ++i) example.tokens.push_back(static_cast<std::int32_t>((7 * i + sequence) % 60));
      example.labels = example.tokens;
      batch.append(example, sequence);
    }
    return batch;
  }
  model::Evaluation evaluate(const data::Batch& batch, const std::atomic<int>* stop = nullptr) {
    return decoder.evaluate(dev, batch, stop);
  }
};

}  // namespace

TEST_CASE("evaluation: more rows than the head takes at once add up to those of each sequence alone") {
  Subject s;
  REQUIRE(3 * 399 > s.decoder.head().tiling().head_rows);
  const auto together = s.evaluate(Subject::batch_of(0, 3));
  model::Evaluation alone;
  for (Index sequence = 0; sequence < 3; ++sequence) {
    const auto one = s.evaluate(Subject::batch_of(sequence, 1));
    alone.loss_sum += one.loss_sum;
    alone.labelled += one.labelled;
    alone.correct += one.correct;
  }
  CHECK(together.labelled == 3 * 399);
  CHECK(together.labelled == alone.labelled);
  CHECK(together.correct == alone.correct);
  CHECK_FALSE(together.stopped);
  // Sums of 64 terms (the width of the model's widest product) in another order, in each of 1,197 independent losses.
  CHECK(together.loss_sum == doctest::Approx(alone.loss_sum).epsilon(64 * 0x1p-24));
}

TEST_CASE("evaluation: one that is asked to stop forms no further layer and says so") {
  Subject s;
  const auto layers_of = [&](int signal) {
    Profile profile;
    s.dev.set_profile(&profile);
    const std::atomic<int> stop{signal};
    model::Evaluation result;
    {
      const Span step(s.dev, Profile::Kind::step, "step");
      result = s.evaluate(Subject::batch_of(0, 1), &stop);
    }
    s.dev.set_profile(nullptr);
    CHECK(result.stopped == (signal != 0));
    CHECK(result.labelled == (signal != 0 ? 0 : 399));
    Index layers = 0;
    for (const auto& node : profile.nodes())
      if (node.kind == Profile::Kind::kernel && node.family == "attention") layers += node.calls;
    return layers;
  };
  CHECK(layers_of(0) == s.decoder.config().num_hidden_layers);
  CHECK(layers_of(15) == 0);
}

}  // namespace evaluation_test
