#include "lora/run/run_state.hpp"

#include <doctest/doctest.h>

#include <string>

#include "lora/io/json.hpp"

namespace run_state_test {

using namespace lora;

TEST_CASE("run_state: every field of trainer_state.json is read where it was written") {
  // No two values are the same, so that a field which is read from another's place shows.
  const io::Json written = io::parse_json(R"({
    "format": 2, "step": 31, "updates": 29, "next_sample": 124, "total_tokens": 5000, "last_loss": 1.5,
    "losses": {"sum": 40.5, "steps": 28}, "losses_since_line": {"sum": 2.75, "steps": 3},
    "last_eval_loss": 1.25, "last_exact_match": 0.125, "last_rouge_l": 0.375,
    "best_eval_loss": 1.125, "best_metric": 0.625, "best_step": 20, "metric_to_beat": 0.5625, "step_to_beat": 24,
    "evaluations_without_improvement": 4, "evaluated_stage": 1, "stage": 2, "ended_stages": [7, 13],
    "loss_scale": 1024.0, "steps_at_loss_scale": 9, "skipped": 5, "overflows": 6,
    "ended_early": true, "out_of_patience": false, "evaluation_due": true, "unlogged": {"step": 30},
    "curriculum": [{"from_step": 8, "to_step": 10, "counts": {"easy": 11}},
                   {"from_step": 12, "to_step": 14, "counts": {"hard": 15, "easy": 16}}],
    "datasets": [{"name": "a", "records": 17}, {"name": "b", "records": 18}],
    "settings": {"seed": 19}})",
                                          "trainer_state.json");
  const auto again = run::detail::to_json(run::detail::parse_state(io::JsonView(written, "trainer_state.json")));
  for (const auto& [field, value] : io::json_fields(written)) {
    const std::string& name = field;
    CAPTURE(name);
    if (name == "datasets") continue;  // beside each count its share is written, which is not read
    REQUIRE(again.contains(name));
    CHECK(again.at(name) == value);
  }
  REQUIRE(again.at("datasets").size() == 2);
  for (std::size_t i = 0; i < 2; ++i)
    for (const char* name : {"name", "records"})
      CHECK(again.at("datasets")[i].at(name) == written.at("datasets")[i].at(name));
  CHECK(again.size() == written.size());

  io::Json other = written;
  other["ended_early"] = false;
  other["out_of_patience"] = true;
  const auto state = run::detail::parse_state(io::JsonView(other, "trainer_state.json"));
  CHECK((!state.ended_early && state.out_of_patience));
}

}  // namespace run_state_test
