#include "lora/settings/keys.hpp"

#include <doctest/doctest.h>

#include <set>

namespace keys_test {

using namespace lora;
using namespace lora::settings;

TEST_CASE("keys: each name once, each with a command and a sentence") {
  std::set<std::string_view> names;
  for (const Key& key : keys()) {
    CAPTURE(std::string(key.name));
    CHECK(names.insert(key.name).second);
    CHECK(key.commands != 0);
    CHECK_FALSE(key.help.empty());
    CHECK(find_key(key.name) == &key);
  }
  CHECK(find_key("learning_rat") == nullptr);
}

TEST_CASE("keys: a key is given when it differs from its default") {
  Config config;
  for (const Key& key : keys()) CHECK_FALSE(is_given(config, key));
  config.per_device_train_batch_size = 1;  // what holds where nothing is given
  config.prompt = "";
  config.seed = 42;
  config.dataset = {"a"};
  for (const Key& key : keys()) {
    CAPTURE(std::string(key.name));
    CHECK(is_given(config, key) ==
          (key.name == "per_device_train_batch_size" || key.name == "prompt" || key.name == "dataset"));
  }
  reset(config, *find_key("dataset"));
  CHECK_FALSE(is_given(config, *find_key("dataset")));
}

TEST_CASE("keys: what holds where an optional key is not given is what the help page says") {
  const Config config;
  CHECK(find_key("lora_rank")->unset == std::to_string(config.rank()));
  CHECK(find_key("per_device_train_batch_size")->unset == std::to_string(config.train_batch_size()));
  CHECK(config.alpha() == 16);
  CHECK(config.sequences_per_step() == 8);
}

TEST_CASE("keys: what is allowed is said in words") {
  CHECK(allowed(*find_key("learning_rate")) == "a number, at least 0");
  CHECK(allowed(*find_key("lora_dropout")) == "a number, at least 0 and below 1");
  CHECK(allowed(*find_key("max_steps")) == "a whole number, -1 or at least 1");
  CHECK(allowed(*find_key("val_size")) == "a number, at least 0, whole from 1 on");
  CHECK(allowed(*find_key("lr_scheduler_type")) == "one of linear, cosine, constant");
  CHECK(allowed(*find_key("shuffle")) == "true or false");
}

TEST_CASE("keys: a range holds its closed ends and not its open ones") {
  const Range half_open{.low = 0, .high = 1, .high_open = true};
  CHECK(half_open.holds(0));
  CHECK_FALSE(half_open.holds(1));
  const Range above{.low = 0, .low_open = true};
  CHECK_FALSE(above.holds(0));
  CHECK(above.holds(1e-300));
  const Range steps{.low = 1, .also = -1.0};
  CHECK(steps.holds(-1));
  CHECK_FALSE(steps.holds(0));
  const Range part{.low = 0, .whole_from_one = true};
  CHECK(part.holds(0.25));
  CHECK(part.holds(3));
  CHECK_FALSE(part.holds(3.5));
}

}  // namespace keys_test
