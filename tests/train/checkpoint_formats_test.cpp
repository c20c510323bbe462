// Checkpoints that earlier versions wrote are resumed, and what they lack is as if nothing had happened yet.

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace checkpoint_formats_test {

using namespace lora;
using namespace lora::test;

namespace {

const io::Path fixtures = io::Path(LORA_FIXTURES) / "checkpoints";

Config small(const Workshop& shop, const std::string& output) {
  Config config = shop.config(output);
  config.lora_target = {"q_proj", "v_proj"};
  config.max_steps = 9;
  return config;
}

}  // namespace

// The version before runs had stages wrote the checkpoint, with the settings of small(). Nothing later can write it.
TEST_CASE("checkpoint formats: one from before runs had stages goes on as the whole run does") {
  const Quiet quiet;
  const Workshop shop;
  const io::Path fixture = fixtures / "without_stages" / "checkpoint-6";
  CHECK_FALSE(io::read_json(fixture / "trainer_state.json").contains("stage"));
  const auto before = run::Checkpoints::open(fixture).state;
  CHECK(before.stage == 0);
  CHECK_FALSE(before.loss_scale.has_value());
  CHECK(before.evaluations_without_improvement == 0);
  CHECK_FALSE(before.ended_early);
  CHECK(before.skipped == 0);
  CHECK(before.overflows == 0);
  CHECK(before.to_beat.has_value() == before.best_metric.has_value());
  for (const char* object : {"config.json", "tokenizer"}) CHECK_FALSE(before.settings.contains(object));

  const auto whole = small(shop, "whole");
  fine_tune(whole);
  auto config = small(shop, "run");
  config.resume_from_checkpoint = fixture.native();
  const auto result = fine_tune(config);
  CHECK(result.metrics.resumed_from_step == 6);
  CHECK(result.metrics.steps == 9);
  const auto log = log_of(shop.temp / "run"), all = log_of(shop.temp / "whole");
  REQUIRE(!log.empty());
  for (std::size_t i = 0; i < log.size(); ++i) {
    const auto& expected = all[all.size() - log.size() + i];
    const char* field = log[i].contains("loss") ? "loss" : "eval_loss";
    CHECK(log[i]["step"] == expected["step"]);
    // The fixture may have been written on another machine, whose roundings are others.
    CHECK(log[i][field].get<double>() == doctest::Approx(expected[field].get<double>()).epsilon(1e-4));
  }
  const io::Json now = io::read_json(shop.temp / "run" / "checkpoints" / "checkpoint-9" / "trainer_state.json");
  for (const char* field :
       {"stage", "loss_scale", "evaluations_without_improvement", "ended_early", "skipped", "overflows"})
    CHECK(now.contains(field));
  CHECK(now.at("settings").contains("config.json"));
}

}  // namespace checkpoint_formats_test
