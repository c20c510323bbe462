#include "lora/doctor/facts.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "lora/doctor/training.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"

namespace facts_test {

using namespace lora;
using namespace lora::doctor;

namespace {

std::string found(const std::vector<Fact>& facts, const std::string& what) {
  const auto at = std::find_if(facts.begin(), facts.end(), [&](const Fact& fact) { return fact.what == what; });
  return at == facts.end() ? "nothing" : at->found;
}

}  // namespace

TEST_CASE("facts: the order of a mask's bits is recognised") {
  std::vector<bool> contract;
  Random random(3);
  for (int i = 0; i < 256; ++i) contract.push_back(random.below(2) == 1);
  const auto reversed = [&](std::size_t reach) {
    std::vector<bool> bits(contract.size());
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = contract[i / reach * reach + reach - 1 - i % reach];
    return bits;
  };
  CHECK(doctor::detail::bit_order(contract, contract) == "as the contract has it");
  CHECK(doctor::detail::bit_order(reversed(8), contract) == "**the first element is a byte's highest bit**");
  CHECK(doctor::detail::bit_order(reversed(32), contract) == "**the first element is the highest of 32 bits**");
  std::vector<bool> opposite = contract, wrong = contract;
  opposite.flip();
  wrong[7] = !wrong[7];
  CHECK(doctor::detail::bit_order(opposite, contract) == "as the contract has it, and ones are what is dropped");
  CHECK(doctor::detail::bit_order(wrong, contract).starts_with("**another**: 1 of 256 elements differ, "));
}

TEST_CASE("facts: the processors sum small products, and drop as the contract has it") {
  cpu::Device dev(1);
  std::vector<Fact> facts;
  add_arithmetic<bf16>(dev, facts);
  CHECK(found(facts, "small products that are added to 1 in bfloat16") == "kept: 1.5 of 1.5");
  CHECK(found(facts, "small products behind 1 in one sum in bfloat16").starts_with("kept: 1."));
  CHECK(found(facts, "order of dropout's bits in bfloat16") == "as the contract has it");
}

TEST_CASE("facts: the environment's variables are those that change what is computed") {
  const test::Environment one("HCCL_CONNECT_TIMEOUT", "600"), other("ASCEND_RT_VISIBLE_DEVICES", "2,3"),
      secret("SOME_TOKEN", "secret");
  const std::vector<Fact> facts = environment_facts();
  CHECK(found(facts, "HCCL_CONNECT_TIMEOUT") == "600");
  CHECK(found(facts, "ASCEND_RT_VISIBLE_DEVICES") == "2,3");
  CHECK(found(facts, "SOME_TOKEN") == "nothing");
  CHECK(found(host_facts(1), "threads").starts_with("1 of "));
}

TEST_CASE("training: steps that go another way are too far, and so are numbers that are none") {
  const TrainingRow reference{.type = "float32", .losses = {5, 4}, .norms = {1, 1}};
  const auto state = [&](std::vector<double> losses, std::vector<double> norms) {
    TrainingRow row{.type = "bfloat16", .losses = std::move(losses), .norms = std::move(norms)};
    doctor::compare(row, reference, {0.01, 0.1});
    return row.state;
  };
  CHECK(state({5.01, 4}, {1, 1.09}) == State::ok);
  CHECK(state({5, 4.1}, {1, 1}) == State::too_far);
  CHECK(state({5, 4}, {0.8, 1}) == State::too_far);
  CHECK(state({5, NAN}, {1, 1}) == State::too_far);
  CHECK(state({5}, {1}) == State::too_far);
}

TEST_CASE("training: of two that should have the same bits, the first step that differs is told") {
  const TrainingRow other{.type = "float16", .losses = {5, 4}, .norms = {1, 2}};
  const auto compared = [&](std::vector<double> losses, std::vector<double> norms, State state = State::ok) {
    TrainingRow row{
        .type = "float16, offload params", .state = state, .losses = std::move(losses), .norms = std::move(norms)};
    doctor::expect_same_bits(row, other);
    return row;
  };
  CHECK(compared({5, 4}, {1, 2}).state == State::ok);
  for (const TrainingRow& row :
       {compared({5, 4.5}, {1, 2}), compared({5, 4}, {1, 2.5}), compared({5}, {1}), compared({5, NAN}, {1, 2})}) {
    CHECK(row.state == State::too_far);
    CHECK(row.words == "step 2 has other bits than in float16");
  }
  CHECK(compared({6, 4}, {1, 2}).words == "step 1 has other bits than in float16");
  CHECK(compared({5}, {1}, State::failed).words.empty());  // which is told already
}

}  // namespace facts_test
