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

TEST_CASE("facts: the order of a mask's bits is recognized") {
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
  CHECK(doctor::detail::bit_order(reversed(16), contract) == "**the first element is the highest of 16 bits**");
  CHECK(doctor::detail::bit_order(reversed(32), contract) == "**the first element is the highest of 32 bits**");
  std::vector<bool> opposite = contract, wrong = contract;
  opposite.flip();
  wrong[7] = !wrong[7];
  CHECK(doctor::detail::bit_order(opposite, contract) == "as the contract has it, and ones are what is dropped");
  const auto dropped = std::count(wrong.begin(), wrong.end(), false);
  CHECK(dropped != 128);
  CHECK(doctor::detail::bit_order(wrong, contract) ==
        concat("**another**: 1 of 256 elements differ, ", dropped, " are dropped"));
  const auto turned = [&](std::size_t reach) {
    std::vector<bool> bits = reversed(reach);
    bits.flip();
    return doctor::detail::bit_order(bits, contract);
  };
  const std::string ones = "**, and ones are what is dropped";
  CHECK(turned(8) == "**the first element is a byte's highest bit" + ones);
  CHECK(turned(16) == "**the first element is the highest of 16 bits" + ones);
  CHECK(turned(32) == "**the first element is the highest of 32 bits" + ones);
}

TEST_CASE("facts: the processors sum small products, and drop as the contract has it") {
  cpu::Device dev(1);
  std::vector<Fact> facts;
  add_arithmetic<bf16>(dev, facts);
  CHECK(found(facts, "small products that are added to 1 in bfloat16") == "kept: 1.5 of 1.5");
  CHECK(found(facts, "small products behind 1 in one sum in bfloat16").starts_with("kept: 1."));
  CHECK(found(facts, "order of dropout's bits in bfloat16") == "as the contract has it");
  // 255 of 2⁻⁹ beside 1 lie nearest to 1.5 of bfloat16's numbers; of 2⁻¹² to 1.0625 of float16's.
  CHECK(found(facts, "small products behind 1 in one sum in bfloat16") == "kept: 1.5 of 1.49804688");
  CHECK(facts.size() == 3);
  add_arithmetic<f16>(dev, facts);
  CHECK(found(facts, "small products that are added to 1 in float16") == "kept: 1.0625 of 1.0625");
  CHECK(found(facts, "small products behind 1 in one sum in float16") == "kept: 1.0625 of 1.06225586");
  CHECK(found(facts, "order of dropout's bits in float16") == "as the contract has it");
  CHECK(facts.size() == 6);
  add_arithmetic<float>(dev, facts);  // whose small products need no wider sums
  CHECK(facts.size() == 7);
  CHECK(found(facts, "order of dropout's bits in float32") == "as the contract has it");
  std::vector<Fact> device;
  add_device(dev, device);
  REQUIRE(device.size() == 1);
  CHECK(device[0].what == "products");
  CHECK(device[0].found == describe_products(dev));
}

TEST_CASE("facts: the environment's variables are those that change what is computed") {
  const test::Environment one("HCCL_CONNECT_TIMEOUT", "600"), other("ASCEND_RT_VISIBLE_DEVICES", "2,3"),
      secret("SOME_TOKEN", "secret");
  const std::vector<Fact> facts = environment_facts();
  CHECK(found(facts, "HCCL_CONNECT_TIMEOUT") == "600");
  CHECK(found(facts, "ASCEND_RT_VISIBLE_DEVICES") == "2,3");
  CHECK(found(facts, "SOME_TOKEN") == "nothing");
  const test::Environment lora("LORA_TEST_X", "a=b"), omp("OMP_TEST_X", ""), gomp("GOMP_TEST_X", "3"),
      not_quite("MY_LORA_X", "4"), lower("lora_x", "5");
  const std::vector<Fact> all = environment_facts();
  CHECK(found(all, "LORA_TEST_X") == "a=b");
  CHECK(found(all, "OMP_TEST_X").empty());
  CHECK(found(all, "GOMP_TEST_X") == "3");
  for (const char* unknown : {"MY_LORA_X", "lora_x"}) CHECK(found(all, unknown) == "nothing");
  CHECK(std::is_sorted(all.begin(), all.end(), [](const Fact& a, const Fact& b) { return a.what < b.what; }));

  const std::vector<Fact> host = host_facts(1);
  CHECK(host.at(0).what == "time");
  CHECK(host.at(0).found.ends_with(" UTC"));
  CHECK(found(host, "threads").starts_with("1 of "));
  const std::string lines = run::describe_environment(1);
  CHECK(host.size() == static_cast<std::size_t>(std::count(lines.begin(), lines.end(), '\n')) + 1);
  for (std::size_t i = 1; i < host.size(); ++i)
    CHECK(test::holds("\n" + lines, concat("\n", host[i].what, ": ", host[i].found, "\n")));
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
