#include "lora/data/sampling/curriculum.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/hash.hpp"
#include "lora/core/random.hpp"

namespace curriculum_test {

using namespace lora;
using data::Curriculum;
using data::CurriculumStage;

namespace {

using Counts = std::vector<Index>;

/// Sequences 100, 101, … whose labels follow each other in turn.
struct Labeled {
  std::vector<Index> sequences{};
  data::SequenceClasses classes{};

  /// `numbers`: of each of the labels, which are sorted; −1 stands for none.
  explicit Labeled(std::vector<std::string> labels, const std::vector<std::int32_t>& of) {
    classes.labels = std::move(labels);
    for (const std::int32_t label : of) {
      sequences.push_back(100 + std::ssize(sequences));
      classes.of.push_back(label);
    }
  }
  std::string label_of(Index sequence) const {
    const std::int32_t at = classes.of[static_cast<std::size_t>(sequence - 100)];
    return at < 0 ? "" : classes.labels[static_cast<std::size_t>(at)];
  }
};

/// 1000 sequences: 500 explain, 300 reasoning, 200 topology.
Labeled thousand() {
  std::vector<std::int32_t> of;
  for (Index i = 0; i < 1000; ++i) of.push_back(i % 10 < 5 ? 0 : i % 10 < 8 ? 1 : 2);
  return Labeled({"explain", "reasoning", "topology"}, of);
}

const std::vector<CurriculumStage> usual = {{0.3, {{"explain", 0.8}, {"reasoning", 0.2}, {"topology", 0}}},
                                            {0.7, {{"explain", 0.4}, {"reasoning", 0.4}, {"topology", 0.2}}},
                                            {1, {{"explain", 0.25}, {"reasoning", 0.35}, {"topology", 0.4}}}};

Counts apportioned(Index total, const std::vector<double>& shares) { return data::apportion(total, shares); }

}  // namespace

TEST_CASE("curriculum: shares become counts by largest remainder, and their sum is the whole") {
  CHECK(apportioned(10, {0.8, 0.2, 0}) == Counts{8, 2, 0});
  CHECK(apportioned(7, {0.5, 0.5}) == Counts{4, 3});            // of equal remainders the first
  CHECK(apportioned(10, {0.3, 0.1}) == Counts{8, 2});           // 7.499999999999999 and 2.5000000000000004
  CHECK(apportioned(7, {0.25, 0.35, 0.4}) == Counts{2, 2, 3});  // 1.75, 2.45, 2.8
  CHECK(apportioned(100, {0.29, 0.71}) == Counts{29, 71});      // 28.999999999999996 and 71
  CHECK(apportioned(30, {0.1, 0.2, 0.7}) == Counts{3, 6, 21});
  CHECK(apportioned(10, {1.0 / 3, 1.0 / 3, 1.0 / 3}) == Counts{4, 3, 3});
  CHECK(apportioned(5, {0.4, 0, 0.2}) == Counts{3, 0, 2});  // 3.33, 1.67: in proportion, though not a sum of 1
  CHECK(apportioned(0, {0.5, 0.5}) == Counts{0, 0});
  for (Index total = 0; total < 200; ++total) {
    const std::vector<double> shares = {0.07, 0.13, 0.29, 0.51};
    const Counts counts = apportioned(total, shares);
    Index sum = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      sum += counts[i];
      CHECK(std::abs(static_cast<double>(counts[i]) - shares[i] * static_cast<double>(total)) < 1);
    }
    CHECK(sum == total);
  }
}

TEST_CASE(
    "curriculum: 300 steps over 1000 records draw each stage's counts, no record twice before its class is used") {
  const Labeled records = thousand();
  for (const Index per_step : {1, 3, 8}) {
    CAPTURE(per_step);
    Curriculum curriculum(usual, records.sequences, records.classes, 42, 300, per_step);
    const auto& stages = curriculum.stages();
    REQUIRE(stages.size() == 3);
    const Index ends[] = {90, 210, 300};
    std::map<std::string, std::vector<Index>> drawn;
    Index begin = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(stages[i].begin == begin);
      CHECK(stages[i].end == ends[i]);
      const Index samples = (ends[i] - begin) * per_step;
      std::map<std::string, Index> counts{{"explain", 0}, {"reasoning", 0}, {"topology", 0}};
      for (Index step = begin; step < ends[i]; ++step) {
        CHECK(curriculum.stage_of(step) == static_cast<Index>(i));
        for (const Index sequence : curriculum.between(step * per_step, (step + 1) * per_step)) {
          ++counts[records.label_of(sequence)];
          drawn[records.label_of(sequence)].push_back(sequence);
        }
      }
      const Index expected[3][3] = {
          {72, 18, 0}, {48, 48, 24}, {23, 31, 36}};  // of 22.5 and 31.5 the first is rounded up
      const double shares[3][3] = {{0.8, 0.2, 0}, {0.4, 0.4, 0.2}, {0.25, 0.35, 0.4}};
      std::size_t c = 0;
      for (const auto& [label, count] : counts) {
        CHECK(count == stages[i].counts[c]);
        CHECK(std::abs(static_cast<double>(count) - shares[i][c] * static_cast<double>(samples)) < 1);
        if (per_step == 1) CHECK(count == expected[i][c]);
        ++c;
      }
      begin = ends[i];
    }
    for (const auto& item : drawn) {
      const std::string& label = item.first;
      const std::vector<Index>& all = item.second;
      CAPTURE(label);
      const auto size = static_cast<std::size_t>(label == "explain" ? 500 : label == "reasoning" ? 300 : 200);
      std::vector<std::vector<Index>> rounds;
      for (std::size_t at = 0; at < all.size(); at += size) {
        rounds.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(at),
                            all.begin() + static_cast<std::ptrdiff_t>(std::min(at + size, all.size())));
        CHECK(std::set<Index>(rounds.back().begin(), rounds.back().end()).size() == rounds.back().size());
      }
      if (per_step == 8) REQUIRE(rounds.size() > 1);
      if (rounds.size() > 1) {
        rounds[0].resize(rounds[1].size());
        CHECK(rounds[0] != rounds[1]);
      }
    }
  }
}

TEST_CASE("curriculum: a function of seed and sample, whatever was asked for before") {
  const Labeled records = thousand();
  const auto all_of = [&](std::uint64_t seed, bool backwards) {
    Curriculum curriculum(usual, records.sequences, records.classes, seed, 20, 5);
    std::vector<std::vector<Index>> steps(20);
    for (Index i = 0; i < 20; ++i) {
      const Index step = backwards ? 19 - i : i;
      steps[static_cast<std::size_t>(step)] = curriculum.between(step * 5, step * 5 + 5);
    }
    return steps;
  };
  CHECK(all_of(1, false) == all_of(1, true));
  CHECK(all_of(1, false) != all_of(2, false));
  Curriculum curriculum(usual, records.sequences, records.classes, 1, 20, 5);
  const auto whole = all_of(1, false)[7];
  const auto left = curriculum.between(35, 37), right = curriculum.between(37, 40);  // units of a step
  CHECK(std::vector<Index>(whole.begin(), whole.begin() + 2) == left);
  CHECK(std::vector<Index>(whole.begin() + 2, whole.end()) == right);
  // Classes are mixed: not one after the other.
  std::string order;
  for (const auto& step : all_of(1, false))
    for (const Index sequence : step) order += records.label_of(sequence)[0];
  CHECK(order.substr(0, 30) != std::string(24, 'e') + std::string(6, 'r'));
}

TEST_CASE("curriculum: a class without records leaves its share to the others, and labels of no mix are not drawn") {
  const Labeled records({"easy", "hard", "odd"}, {0, 0, 0, 1, 2, 2, -1});
  const std::vector<CurriculumStage> stages = {{0.5, {{"easy", 0.6}, {"hard", 0.2}, {"absent", 0.2}}},
                                               {1, {{"hard", 0.5}, {"gone", 0.25}, {"zone", 0.25}}}};
  Curriculum curriculum(stages, records.sequences, records.classes, 3, 10, 4);
  CHECK(curriculum.labels() == std::vector<std::string>{"easy", "hard"});
  CHECK(curriculum.missing() == std::vector<std::string>{"absent", "gone", "zone"});
  CHECK(curriculum.left_out() == 3);
  CHECK(curriculum.stages()[0].counts == Counts{15, 5});
  CHECK(curriculum.stages()[1].counts == Counts{0, 20});
  for (const Index sequence : curriculum.between(20, 40)) CHECK(sequence == 103);  // the only hard one, again and again
  // The order of a class does not depend on which others there are.
  const Labeled fewer({"easy", "hard"}, {0, 0, 0, 1});
  Curriculum again(stages, fewer.sequences, fewer.classes, 3, 10, 4);
  CHECK(again.between(0, 20) == curriculum.between(0, 20));

  // A share of nothing asks for no class, whether a record has it or none.
  const std::vector<CurriculumStage> shareless = {{1, {{"easy", 1}, {"hard", 0}, {"never", 0}}}};
  const Curriculum easy(shareless, records.sequences, records.classes, 3, 10, 4);
  CHECK(easy.labels() == std::vector<std::string>{"easy"});
  CHECK(easy.missing().empty());
  CHECK(easy.left_out() == 4);
  CHECK(easy.classes().classes.at(0).sequences == std::vector<std::uint32_t>{100, 101, 102});

  const std::vector<CurriculumStage> none = {{0.5, {{"easy", 1}}}, {1, {{"absent", 1}, {"easy", 0}}}};
  CHECK_THROWS_WITH_AS(
      Curriculum(none, records.sequences, records.classes, 3, 10, 4),
      "key curriculum_stages: no record has a label of the mix of stage 2: \"absent\"; the labels of the "
      "records, in the field that curriculum_field names: \"easy\", \"hard\", \"odd\"",
      ConfigError);
}

TEST_CASE("curriculum: of more samples than can be drawn it is refused") {
  const Labeled records = thousand();
  const std::vector<CurriculumStage> one = {{1, {{"explain", 1}}}};
  for (const Index steps : {Index{1} << 30, Index{0x7FFFFFFFFFFFFFFF}})
    CHECK_THROWS_WITH_AS(Curriculum(one, records.sequences, records.classes, 3, steps, 4),
                         doctest::Contains("at most 4294967295 samples are supported"), ConfigError);
}

TEST_CASE("curriculum: stages of odd sizes cover all steps, and a short run may leave one without any") {
  const Labeled records = thousand();
  for (const Index steps : {1, 2, 3, 7, 11, 101}) {
    CAPTURE(steps);
    const Curriculum curriculum(usual, records.sequences, records.classes, 42, steps, 3);
    Index begin = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const auto& stage = curriculum.stages()[i];
      CHECK(stage.begin == begin);
      for (Index step = stage.begin; step < stage.end; ++step) {
        CHECK(static_cast<double>(step) < usual[i].until * static_cast<double>(steps));
        if (i > 0) CHECK(static_cast<double>(step) >= usual[i - 1].until * static_cast<double>(steps));
        CHECK(curriculum.stage_of(step) == static_cast<Index>(i));
      }
      begin = stage.end;
    }
    CHECK(begin == steps);
  }
}

TEST_CASE("curriculum: stages and classes are drawn by keys that never change from one version to the next") {
  const Labeled records({"a", "b"}, {0, 1, 0, 0, 1});
  const std::vector<CurriculumStage> stages = {{0.5, {{"a", 0.75}, {"b", 0.25}}}, {1, {{"a", 0.5}, {"b", 0.5}}}};
  Curriculum curriculum(stages, records.sequences, records.classes, 11, 4, 2);
  const std::vector<Index> sequences[] = {{100, 102, 103}, {101, 104}};
  const char* const labels[] = {"a", "b"};
  const Index of_a[] = {3, 2};  // of the four samples of each stage
  std::size_t drawn[] = {0, 0};
  for (Index stage = 0; stage < 2; ++stage) {
    const auto places = permutation(4, mix_key(11, 0x63757272, static_cast<std::uint64_t>(stage)));
    for (Index place = 0; place < 4; ++place) {
      const std::size_t own = Index{places[static_cast<std::size_t>(place)]} < of_a[stage] ? 0 : 1;
      const std::size_t size = sequences[own].size(), round = drawn[own] / size;
      const auto order = permutation(static_cast<Index>(size),
                                     mix_key(11, 0x636C617373, text_hash(std::string_view(labels[own])), round));
      const Index sample = 4 * stage + place;
      CHECK(curriculum.between(sample, sample + 1).at(0) == sequences[own][order[drawn[own]++ % size]]);
    }
  }
}

TEST_CASE("curriculum: the most samples that can be drawn, and what more are told") {
  const Labeled records({"a"}, {0});
  const std::vector<CurriculumStage> one = {{1, {{"a", 1}}}};
  CHECK_THROWS_WITH_AS(Curriculum(one, records.sequences, records.classes, 3, Index{1} << 30, 4),
                       "a curriculum of 1073741824 steps of 4 samples; at most 4294967295 samples are supported",
                       ConfigError);
  const Curriculum most(one, records.sequences, records.classes, 3, (Index{1} << 30) - 1, 4);
  CHECK(most.stages()[0].counts == Counts{4294967292});
  CHECK(most.stage_of(0) == 0);
  CHECK(CurriculumStage().until == 1);
  const auto usual_ones = data::easy_to_hard();
  CHECK(usual_ones == usual);
}

}  // namespace curriculum_test
