#include "lora/run/run_state.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lora/io/formats/json.hpp"
#include "support/message_of.hpp"

namespace run_state_test {

using namespace lora;
using run::RunState;

TEST_CASE("run_state: every field of trainer_state.json is read where it was written") {
  // No two values are the same, so that a field which is read from another's place shows.
  const io::Json written = io::parse_json(R"({
    "format": 2, "step": 31, "updates": 29, "next_sample": 124, "total_tokens": 5000, "shared_tokens": 2100,
    "last_loss": 1.5, "losses": {"sum": 40.5, "steps": 28}, "losses_since_line": {"sum": 2.75, "steps": 3},
    "last_eval_loss": 1.25, "last_exact_match": 0.125, "last_rouge_l": 0.375,
    "best_eval_loss": 1.125, "best_metric": 0.625, "best_step": 20, "metric_to_beat": 0.5625, "step_to_beat": 24,
    "evaluated_records": "7 records with checksum 0123456789abcdef",
    "evaluations_without_improvement": 4, "evaluated_stage": 1, "threads": 32, "stage": 2, "ended_stages": [7, 13],
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

namespace {

RunState parsed(const io::Json& json) { return run::detail::parse_state(io::JsonView(json, "state")); }

/// The fields that no state goes without.
io::Json least() {
  return io::parse_json(R"({"step": 3, "updates": 2, "next_sample": 12, "total_tokens": 50, "best_step": 1,
                            "settings": {}})",
                        "state");
}

std::string refused(const char* field, const char* value) {
  io::Json json = least();
  json[field] = io::parse_json(value, "value");
  return test::message_of<FormatError>([&] { parsed(json); });
}

}  // namespace

TEST_CASE("run_state: what earlier versions did not write has its value of then, and what all wrote must be there") {
  const RunState state = parsed(least());
  CHECK(state.last_loss == 0);
  CHECK(state.losses.steps == 0);
  CHECK(state.losses_since_line.sum == 0);
  for (const bool is_none :
       {!state.last_eval_loss, !state.last_exact_match, !state.last_rouge_l, !state.best_eval_loss, !state.best_metric,
        !state.to_beat, !state.loss_scale, !state.ended_early, !state.out_of_patience, !state.evaluation_due})
    CHECK(is_none);
  for (const Index number :
       {state.evaluations_without_improvement, state.stage, state.evaluated_stage, state.skipped, state.overflows})
    CHECK(number == 0);
  CHECK(state.ended_stages.empty());
  CHECK(state.drawn.empty());
  CHECK(state.learned_of_files.empty());
  CHECK(state.unlogged.is_null());
  CHECK(state.step_to_beat() == 1);
  for (const char* field : {"step", "updates", "next_sample", "total_tokens", "best_step", "settings"}) {
    CAPTURE(field);
    io::Json json = least();
    json.erase(field);
    CHECK(test::message_of<FormatError>([&] { parsed(json); }).find(concat("\"", field, "\"")) != std::string::npos);
  }
  CHECK(refused("settings", "[]") == "state: \"settings\" must be an object");
}

TEST_CASE("run_state: the metric to beat is the best one where a state is older than stages, and only there") {
  io::Json json = least();
  json["best_eval_loss"] = 0.5;
  RunState state = parsed(json);
  CHECK(state.best_metric == 0.5);
  CHECK(state.to_beat == std::pair<double, Index>(0.5, 1));
  CHECK(state.step_to_beat() == 1);
  json["best_metric"] = 0.75;
  CHECK(parsed(json).best_metric == 0.75);
  CHECK(parsed(json).best_eval_loss == 0.5);
  CHECK(parsed(json).to_beat == std::pair<double, Index>(0.75, 1));
  json["stage"] = 2;
  CHECK(parsed(json).evaluated_stage == 2);
  json["evaluated_stage"] = 1;
  state = parsed(json);
  CHECK(state.stage == 2);
  CHECK(state.evaluated_stage == 1);
  CHECK_FALSE(state.to_beat);
  json["metric_to_beat"] = 0.25;
  CHECK(test::message_of<FormatError>([&] { parsed(json); }).find("\"step_to_beat\"") != std::string::npos);
  json["step_to_beat"] = 3;
  CHECK(parsed(json).to_beat == std::pair<double, Index>(0.25, 3));
  CHECK(parsed(json).step_to_beat() == 3);
}

TEST_CASE("run_state: a loss scale is a power of two from 1 to 2^126, and its steps a count") {
  const std::string range = "; expected a power of two from 1 to 2^126";
  for (const char* value : {"1", "2.0", "85070591730234615865843651857942052864"}) {
    io::Json json = least();
    json["loss_scale"] = io::parse_json(value, "value");
    REQUIRE(parsed(json).loss_scale);
    CHECK(parsed(json).loss_scale->value == json["loss_scale"].get<double>());
    CHECK(parsed(json).loss_scale->good_steps == 0);
  }
  CHECK(refused("loss_scale", "3") == "state: \"loss_scale\" is 3" + range);
  CHECK(refused("loss_scale", "0.5") == "state: \"loss_scale\" is 0.5" + range);
  CHECK(refused("loss_scale", "0") == "state: \"loss_scale\" is 0" + range);
  CHECK(refused("loss_scale", "-2") == "state: \"loss_scale\" is -2" + range);
  CHECK(refused("loss_scale", "170141183460469231731687303715884105728").ends_with(range));
  io::Json json = least();
  json["loss_scale"] = 4;
  json["steps_at_loss_scale"] = -1;
  CHECK(test::message_of<FormatError>([&] { parsed(json); }) == "state: \"steps_at_loss_scale\" is -1");
  json["steps_at_loss_scale"] = 5;
  CHECK(parsed(json).loss_scale->good_steps == 5);
}

TEST_CASE("run_state: counts of classes and files that can't be are told with their place") {
  CHECK(test::holds(refused("curriculum", R"([{"from_step": 0, "to_step": 1}])"), "\"counts\" must be an object"));
  CHECK(test::holds(refused("curriculum", R"([{"from_step": 0, "to_step": 1, "counts": []}])"),
                    "\"counts\" must be an object"));
  CHECK(test::holds(refused("curriculum", R"([{"to_step": 1, "counts": {}}])"), "\"from_step\""));
  CHECK(test::holds(refused("datasets", R"([{"name": "a", "records": 0}, {"name": "b", "records": -1}])"),
                    "\"records\" is -1"));
  CHECK(test::holds(refused("datasets", R"([{"records": 1}])"), "\"name\""));
}

TEST_CASE("run_state: what is not known is null or no field, and a line is kept only while its evaluation is due") {
  const auto written = [](const RunState& state) { return run::detail::to_json(state); };
  RunState state;
  const io::Json plain = written(state);
  CHECK(plain.at("format") == 2);
  for (const char* name : {"last_eval_loss", "best_eval_loss", "best_metric", "loss_scale"})
    CHECK(plain.at(name).is_null());
  for (const char* name : {"metric_to_beat", "step_to_beat", "last_exact_match", "last_rouge_l", "steps_at_loss_scale",
                           "evaluation_due", "unlogged", "curriculum", "datasets"})
    CHECK_FALSE(plain.contains(name));
  state.unlogged = {{"step", 1}};
  CHECK_FALSE(written(state).contains("unlogged"));
  state.evaluation_due = true;
  CHECK(written(state).at("unlogged").at("step") == 1);
  state.unlogged = nullptr;
  CHECK_FALSE(written(state).contains("unlogged"));
  CHECK(written(state).at("evaluation_due") == true);
}

TEST_CASE("run_state: a mean is of the losses that were added, and none without any") {
  run::LossMean losses;
  CHECK(std::isnan(losses.mean()));
  losses.add(1);
  losses.add(4);
  CHECK(losses.steps == 2);
  CHECK(losses.mean() == 2.5);
}

TEST_CASE("run_state: another number of threads is said, and the first one or none is not") {
  RunState state;
  CHECK(run::note_threads(state, 1).empty());
  CHECK(run::note_threads(state, 1).empty());
  CHECK(run::note_threads(state, 4) ==
        "the steps so far ran on 1 thread a process, those to come run on 4; the last bits of products depend on that "
        "number");
  CHECK(run::note_threads(state, 0).empty());  // on an NPU
  CHECK(run::note_threads(state, 2).empty());
  CHECK(run::note_threads(state, 3).find("ran on 2 threads a process") != std::string::npos);
  CHECK(state.threads == 3);
}

TEST_CASE("run_state: files that nothing was learned from have no share") {
  const io::Json files = run::to_json(std::vector<std::pair<std::string, Index>>{{"a", 0}, {"b", 0}});
  REQUIRE(files.size() == 2);
  for (const io::Json& file : files) CHECK(file.at("share") == 0);
}

TEST_CASE("run_state: what was measured on other records is forgotten, whatever it was, and nothing else is") {
  const auto noted = [](RunState state, const std::string& before) {
    state.evaluated_records = before;
    const std::string said = run::note_evaluated_records(state, "new");
    CHECK(state.evaluated_records == "new");
    return std::pair(state, said);
  };
  RunState measured;
  measured.best_eval_loss = 1;
  measured.best_metric = 2;
  measured.best_step = 3;
  measured.to_beat.emplace(4, 5);
  measured.evaluations_without_improvement = 6;
  measured.last_eval_loss = 7;
  for (const char* before : {"", "new"}) {  // of an earlier version, and the same
    const auto [state, said] = noted(measured, before);
    CHECK(said.empty());
    CHECK((state.best_eval_loss == 1 && state.best_metric == 2 && state.best_step == 3));
    CHECK((state.to_beat && state.evaluations_without_improvement == 6));
  }
  const auto [state, said] = noted(measured, "old");
  CHECK(said ==
        "evaluations were of old, and go on with new; the best of them and early stopping's patience begin anew");
  CHECK((!state.best_eval_loss && !state.best_metric && state.best_step == 0));
  CHECK((!state.to_beat && state.evaluations_without_improvement == 0));
  CHECK(state.last_eval_loss == 7);

  CHECK(noted({}, "old").second.empty());  // nothing was measured
  RunState never_finite;
  never_finite.evaluations_without_improvement = 1;
  CHECK(noted(never_finite, "old").first.evaluations_without_improvement == 0);
  RunState of_the_stage;
  of_the_stage.to_beat.emplace(1, 2);
  CHECK_FALSE(noted(of_the_stage, "old").first.to_beat);
}

TEST_CASE("run_state: a run that has done nothing has counted nothing") {
  CHECK(io::to_text(run::detail::to_json(RunState()), -1) ==
        R"({"format":2,"step":0,"updates":0,"next_sample":0,"total_tokens":0,"last_loss":0.0,)"
        R"("losses":{"sum":0.0,"steps":0},"losses_since_line":{"sum":0.0,"steps":0},"last_eval_loss":null,)"
        R"("best_eval_loss":null,"best_metric":null,"best_step":0,"evaluations_without_improvement":0,)"
        R"("evaluated_stage":0,"stage":0,"ended_stages":[],"loss_scale":null,"skipped":0,"overflows":0,)"
        R"("ended_early":false,"out_of_patience":false,"settings":{}})");
  CHECK(io::to_text(run::to_json(std::vector<run::DrawnClasses>(1)), -1) ==
        R"([{"from_step":0,"to_step":0,"counts":{}}])");
  CHECK(RunState().step_to_beat() == 0);
}

}  // namespace run_state_test
