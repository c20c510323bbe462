// Which token is chosen from logits: against sorting all of them, against transformers' filters and against the
// probabilities themselves.

#include "lora/decode/sampling.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/io/formats/json.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"

namespace sampling_test {

namespace {

using namespace lora;
using namespace lora::test;

/// The definition: all tokens sorted, from the most likely on.
std::int32_t sorted_choice(std::span<const float> logits, const decode::Sampling& how, std::uint64_t sequence,
                           Index position) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](std::int32_t id) { return static_cast<double>(logits[static_cast<std::size_t>(id)]); };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logit(a) > logit(b); });
  if (how.top_k > 0 && static_cast<std::size_t>(how.top_k) < order.size()) {
    std::size_t equal = static_cast<std::size_t>(how.top_k);
    while (equal < order.size() && logit(order[equal]) == logit(order[static_cast<std::size_t>(how.top_k) - 1]))
      ++equal;
    order.resize(equal);
  }
  std::vector<double> weights;
  for (const auto id : order) weights.push_back(std::exp((logit(id) - logit(order[0])) / how.temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double kept = 0;
  std::size_t count = 0;
  while (count < weights.size() && (count == 0 || (kept < how.top_p * total && weights[count] >= how.min_p)))
    kept += weights[count++];
  Random random(mix_key(how.seed, sequence, static_cast<std::uint64_t>(position)));
  double left = static_cast<double>(random.uniform()) * kept;
  std::size_t i = 0;
  while (i + 1 < count && (left -= weights[i]) >= 0) ++i;
  return order[i];
}

}  // namespace

TEST_CASE("sampling: the choice is the one of all tokens sorted, for every setting") {
  // The two add up the total in different orders; a choice could differ where the random number lies within some 1e-13
  // of a boundary, which none of these does.
  Index cases = 0;
  const auto draws = test::effort<std::uint64_t>(60, 6, "sampling: 54 of 60 draws for each setting");
  for (const double temperature : {0.05, 0.7, 1.0, 3.0, 1000.0})
    for (const double top_p : {-1.0, 0.0, 0.1, 0.9, 0.999, 1.0, 2.0})
      for (const Index top_k : {Index{-1}, Index{0}, Index{1}, Index{7}, Index{300}, Index{1000}})
        for (std::uint64_t draw = 0; draw < draws; ++draw) {
          Random random(mix_key(draw, ++cases));
          std::vector<float> logits(300);
          for (float& logit : logits) logit = 10 * static_cast<float>(random.uniform());
          if (draw % 2 == 0)  // ties
            for (float& logit : logits) logit = std::round(logit);
          decode::Sampling how{.temperature = temperature, .top_p = top_p, .top_k = top_k, .seed = draw};
          if (draw % 3 == 0) how.min_p = draw % 2 == 0 ? 0.02 : 0.4;
          const std::span<const float> row(logits);
          CAPTURE(temperature);
          CAPTURE(top_p);
          CAPTURE(top_k);
          CAPTURE(draw);
          REQUIRE(decode::sample(row, how, draw, 3) == sorted_choice(row, how, draw, 3));
        }
  CHECK(cases == 5 * 7 * 6 * static_cast<Index>(draws));
}

TEST_CASE("sampling: without a temperature it is the most likely token, of several the first") {
  const std::vector<float> logits{1, 3, 3, -2};
  for (const double temperature : {0.0, -1.0})
    for (const double top_p : {0.0, 1.0})
      CHECK(decode::sample(std::span<const float>(logits), {.temperature = temperature, .top_p = top_p}, 0, 0) == 1);
}

TEST_CASE("sampling: what code asks for is checked") {
  CHECK_THROWS_WITH_AS(decode::sample(std::span<const float>(), {}, 0, 0),
                       "[sample] there are no logits to choose from", ShapeError);
  const std::vector<float> logits = {0.5f, 0.25f};
  for (const auto& [name, setting] :
       {std::pair{"temperature", &decode::Sampling::temperature}, std::pair{"top_p", &decode::Sampling::top_p},
        std::pair{"min_p", &decode::Sampling::min_p}}) {
    decode::Sampling odd;
    odd.temperature = 0.5;
    odd.*setting = std::numeric_limits<double>::quiet_NaN();
    const std::string said =
        message_of<ConfigError>([&, &odd = odd] { (void)decode::sample(std::span<const float>(logits), odd, 0, 0); });
    CHECK(said == concat("[sample] ", name, ": given nan, allowed: a number"));
  }
}

TEST_CASE("sampling: the candidates and their probabilities are those of transformers' filters") {
  const io::Json fixture = io::read_json(io::Path(LORA_FIXTURES) / "sampling.json");
  const auto rows = fixture.at("rows").get<std::vector<std::vector<float>>>();
  decode::SeenIds seen;
  seen.add(fixture.at("seen").get<std::vector<std::int32_t>>());
  for (const io::Json& one : fixture.at("cases")) {
    const io::Json& settings = one.at("settings");
    CAPTURE(io::to_text(settings, -1));
    decode::Sampling how;
    how.temperature = settings.value("temperature", how.temperature);
    how.top_k = settings.value("top_k", how.top_k);
    how.top_p = settings.value("top_p", how.top_p);
    how.min_p = settings.value("min_p", how.min_p);
    how.repetition_penalty = settings.value("repetition_penalty", how.repetition_penalty);
    std::vector<float> logits = rows.at(one.at("row").get<std::size_t>());
    seen.penalize(std::span(logits), how.repetition_penalty);
    decode::Candidates<float> candidates(logits, how);
    const auto kept = one.at("kept").get<std::vector<std::pair<std::int32_t, double>>>();
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const auto* candidate = candidates.at(i);
      REQUIRE(candidate != nullptr);
      CHECK(candidate->first == kept[i].first);
      CHECK(std::fabs(candidate->second / candidates.total() - kept[i].second) < 2e-6);
    }
    CHECK(candidates.at(kept.size()) == nullptr);
  }
}

TEST_CASE("sampling: a penalty is for each id once, and for those that are there") {
  decode::SeenIds seen;
  const std::vector<std::int32_t> prompt{2, 0, 2, 4, 9}, answer{0};
  seen.add(prompt);
  seen.add(answer);
  std::vector<float> logits{4, 4, -3, 0, 5};
  seen.penalize(std::span(logits).first(4), 2);
  CHECK(logits == std::vector<float>{2, 4, -6, 0, 5});
}

TEST_CASE("sampling: there are no candidates without a temperature") {
  const std::vector<float> logits{1, 2};
  CHECK_THROWS_WITH_AS(decode::Candidates<float>(logits, {}), "[sample] temperature: given 0, allowed: above 0",
                       ConfigError);
}

TEST_CASE("sampling: it repeats by seed and stays among top_k and top_p") {
  const std::vector<float> logits{0, 3, 1, 2};  // probabilities 0.03, 0.64, 0.09, 0.24
  const auto drawn = [&](const decode::Sampling& options) {
    std::vector<int> counts(4);
    for (Index i = 0; i < 400; ++i) {
      const auto token = decode::sample(std::span<const float>(logits), options, 1, i);
      CHECK(token == decode::sample(std::span<const float>(logits), options, 1, i));
      ++counts[static_cast<std::size_t>(token)];
    }
    return counts;
  };
  decode::Sampling all;
  all.temperature = 1;
  auto some = all, likely = all;
  some.top_k = 3;
  likely.top_p = 0.8;
  for (const int count : drawn(all)) CHECK(count > 0);
  const auto three = drawn(some), two = drawn(likely);
  CHECK((three[0] == 0 && three[1] > 0 && three[2] > 0 && three[3] > 0));
  CHECK((two[0] == 0 && two[1] > 0 && two[2] == 0 && two[3] > 0));
}

TEST_CASE("sampling: at a temperature T tokens are drawn as often as exp(logit / T) has it") {
  const std::vector<float> logits{0, 3, 1, 2};
  constexpr Index draws = 4000;
  for (const double temperature : {0.5, 1.0, 4.0}) {
    CAPTURE(temperature);
    decode::Sampling options;
    options.temperature = temperature;
    std::vector<int> counts(4);
    for (Index i = 0; i < draws; ++i)
      ++counts[static_cast<std::size_t>(decode::sample(std::span<const float>(logits), options, 1, i))];
    double total = 0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit) / temperature);
    for (std::size_t id = 0; id < logits.size(); ++id) {
      const double p = std::exp(static_cast<double>(logits[id]) / temperature) / total;
      // Five standard deviations of a count of so many independent draws.
      CHECK(std::fabs(counts[id] - p * draws) < 5 * std::sqrt(p * (1 - p) * draws));
    }
  }
}

TEST_CASE("sampling: what is not set is the most likely token, and the draw is that of the position") {
  const decode::Sampling plain;
  CHECK((plain.temperature == 0 && plain.top_p == 1 && plain.top_k == 0 && plain.seed == 42));
  CHECK((plain.min_p == 0 && plain.repetition_penalty == 1));
  const std::vector<float> logits(1000, 0.0f);  // all alike: the id is the random number
  decode::Sampling drawn;
  drawn.temperature = 1;
  const auto draw = [&](std::uint64_t seed, std::uint64_t sequence, Index position) {
    drawn.seed = seed;
    return decode::sample(std::span<const float>(logits), drawn, sequence, position);
  };
  for (const std::uint64_t sequence : {0u, 3u})
    for (const Index position : {0, 5}) {
      Random random(mix_key(std::uint64_t{7}, sequence, static_cast<std::uint64_t>(position)));
      CHECK(draw(7, sequence, position) == static_cast<std::int32_t>(static_cast<double>(random.uniform()) * 1000));
    }
}

TEST_CASE("sampling: as many as there are, or more, are all of them, and infinite logits are certain") {
  const std::vector<float> logits{0, 1, 2};
  decode::Sampling all, three, more;
  all.temperature = three.temperature = more.temperature = 5;
  three.top_k = 3;
  more.top_k = 4;
  for (Index i = 0; i < 50; ++i) {
    const auto one = decode::sample(std::span<const float>(logits), all, 1, i);
    CHECK(decode::sample(std::span<const float>(logits), three, 1, i) == one);
    CHECK(decode::sample(std::span<const float>(logits), more, 1, i) == one);
  }
  decode::Sampling first = all;
  first.top_k = 1;
  for (Index i = 0; i < 20; ++i) CHECK(decode::sample(std::span<const float>(logits), first, 1, i) == 2);
}

}  // namespace sampling_test
