// The loss of labeled rows: in parts of the head's rows, and given up where a stop is asked for.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lora/core/ignore_index.hpp"
#include "lora/core/profile.hpp"
#include "lora/data/batches/batch.hpp"
#include "lora/instantiate.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "support/message_of.hpp"
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
    alone.labeled += one.labeled;
    alone.correct += one.correct;
  }
  CHECK(together.labeled == 3 * 399);
  CHECK(together.labeled == alone.labeled);
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
      const ProfileScope step(s.dev, Profile::Kind::step, "step");
      result = s.evaluate(Subject::batch_of(0, 1), &stop);
    }
    s.dev.set_profile(nullptr);
    CHECK(result.stopped == (signal != 0));
    CHECK(result.labeled == (signal != 0 ? 0 : 399));
    Index layers = 0;
    for (const auto& node : profile.nodes())
      if (node.kind == Profile::Kind::kernel && node.family == "attention") layers += node.calls;
    return layers;
  };
  CHECK(layers_of(0) == s.decoder.config().num_hidden_layers);
  CHECK(layers_of(15) == 0);
}

TEST_CASE("evaluation: the loss of each labeled row is told in order, and labels that no logit exceeds are counted") {
  Subject s;
  data::Batch batch = Subject::batch_of(0, 1);
  for (std::size_t i = 0; i < batch.labels.size(); ++i)
    if (i % 3 != 0) batch.labels[i] = ignore_index;
  batch.labeled = std::count_if(batch.labels.begin(), batch.labels.end(), [](auto l) { return l != ignore_index; });
  std::vector<double> losses;
  const auto result = s.decoder.evaluate(s.dev, batch, nullptr, &losses);
  REQUIRE(static_cast<Index>(losses.size()) == batch.labeled);
  CHECK(result.labeled == batch.labeled);
  double sum = 0;
  for (const double loss : losses) {
    CHECK(loss > 0);
    sum += loss;
  }
  CHECK(result.loss_sum == sum);
  // The logits themselves.
  std::vector<std::int32_t> rows;
  for (std::size_t i = 0; i < batch.labels.size(); ++i)
    if (batch.labels[i] != ignore_index) rows.push_back(static_cast<std::int32_t>(i));
  const nn::Pass<D, float> pass(s.dev, batch);
  const auto logits = s.decoder.logits(s.dev, pass, rows);
  Index best = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const float* const row = logits.data() + i * 61;
    const auto label = static_cast<std::size_t>(batch.labels[static_cast<std::size_t>(rows[i])]);
    double total = 0;
    for (std::size_t j = 0; j < 61; ++j) total += std::exp(static_cast<double>(row[j]));
    CHECK(losses[i] == doctest::Approx(std::log(total) - static_cast<double>(row[label])).epsilon(1e-5));
    best += row[label] >= *std::max_element(row, row + 61) ? 1 : 0;
  }
  CHECK(result.correct == best);
  batch.labels.assign(batch.labels.size(), ignore_index);
  const auto none = s.decoder.evaluate(s.dev, batch, nullptr, &losses);
  CHECK((none.labeled == 0 && none.loss_sum == 0 && none.correct == 0 && !none.stopped));
  CHECK(static_cast<std::size_t>(result.labeled) == losses.size());  // nothing was added
}

TEST_CASE("evaluation: tokens and labels that are not in the vocabulary are named, where they count") {
  Subject s;
  const auto told = [&](const auto& change) {
    data::Batch batch = Subject::batch_of(0, 1);
    change(batch);
    return test::message_of<FormatError>([&] { (void)s.evaluate(batch); });
  };
  CHECK(told([](auto& b) { b.tokens[7] = 61; }) == "token 61 at position 7 is not in the model's vocabulary of 61");
  CHECK(told([](auto& b) { b.labels[2] = 61; }) == "label 61 at position 2 is not in the model's vocabulary of 61");
  CHECK(told([](auto& b) { b.labels[3] = -1; }) == "label -1 at position 3 is not in the model's vocabulary of 61");
  CHECK(told([](auto& b) { b.labels[3] = 60; }) == "nothing was thrown");
  CHECK(told([](auto& b) { b.labels[3] = ignore_index; }) == "nothing was thrown");
  const nn::Pass<D, float> pass(s.dev, Subject::batch_of(0, 1));
  for (const std::int32_t row : {-1, 400}) {
    const std::vector<std::int32_t> chosen{0, 399, row};
    CHECK(test::message_of<ShapeError>([&] { (void)s.decoder.logits(s.dev, pass, chosen); }) ==
          concat("[decoder] row ", row, " was chosen, number 2, of a pass of 400 rows"));
  }
  CHECK(s.decoder.logits(s.dev, pass, {}).empty());
}

TEST_CASE(
    "decoder: matrices that train are of the first group, vectors of the next, and B of the one that is asked for") {
  Subject s;
  const auto every = [](const model::TensorInfo&) { return true; };
  const auto groups_of = [&] {
    std::map<Index, std::set<std::string>> groups;
    for (const auto& entry : s.decoder.params().entries()) {
      const bool factor = entry.name.ends_with("lora_A") || entry.name.ends_with("lora_B");
      const bool vector = entry.name.find("norm") != entry.name.npos;
      groups[s.decoder.params().place(entry.storage).group].insert(factor ? entry.name.substr(entry.name.size() - 6)
                                                                          : std::string(vector ? "vector" : "matrix"));
    }
    return groups;
  };
  using Groups = std::map<Index, std::set<std::string>>;
  model::AdapterConfig adapter;
  s.decoder.attach(s.dev, adapter, every, 2);
  CHECK(groups_of() == Groups{{0, {"lora_A", "matrix"}}, {1, {"vector"}}, {2, {"lora_B"}}});
  s.decoder.attach(s.dev, adapter);
  CHECK(groups_of() == Groups{{0, {"lora_A", "lora_B"}}});
  CHECK(s.decoder.adapter().rank == 8);
  s.decoder.train_own(s.dev, every);
  CHECK(groups_of() == Groups{{0, {"matrix"}}, {1, {"vector"}}});
  CHECK(s.decoder.keep_layers(1 << 20) == 0);
  CHECK_FALSE(s.decoder.streaming());
  adapter.layers = {7};
  CHECK(test::message_of<ConfigError>([&] { s.decoder.attach(s.dev, adapter); }) ==
        "the adapter targets no projection of this model");
  CHECK(test::message_of<ConfigError>([&] {
          s.decoder.train_own(s.dev, [](const model::TensorInfo&) { return false; });
        }) == "none of the model's tensors is chosen to train");
}

}  // namespace evaluation_test
