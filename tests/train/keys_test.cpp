#include "lora/train/keys.hpp"

#include <doctest/doctest.h>

#include <set>

namespace keys_test {

using namespace lora;
using namespace lora::train;

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

TEST_CASE("keys: the nearest name is the fewest edits away, a hyphen counting as an underscore") {
  CHECK(nearest_key("learning_rat", train_command) == "learning_rate");
  CHECK(nearest_key("learnign_rate", train_command) == "learning_rate");
  CHECK(nearest_key("lora-alpha", train_command) == "lora_alpha");
  CHECK(nearest_key("promt", generate_command) == "prompt");
  CHECK(nearest_key("promt", train_command) != "prompt");
  CHECK(nearest_name("", {"abc", "ab"}) == "ab");
  CHECK(nearest_name("kitten", {"sittingxxx", "mitten", "kit"}) == "mitten");
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
