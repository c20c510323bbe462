/// Every operator of the Ascend stand-in, called as a program for the vendor's library calls it, against PyTorch.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>

#include "ascend/operator_calls.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/io/formats/safetensors.hpp"

namespace operators_test {

using namespace operator_calls;

namespace {

struct Family {
  explicit Family(const std::string& name)
      : json(io::read_json(std::string(LORA_FIXTURES "/ascend_operators/") + name + ".json")),
        file(io::Safetensors::open(LORA_FIXTURES "/ascend_operators/" + name + ".safetensors")) {}

  Json json;
  io::Safetensors file;
};

void check_cases(const std::string& name) {
  const Device device;
  const Family family(name);
  for (const Json& json : family.json.at("cases")) Case(json, family.file).run(device.stream);
}

/// The first case of each operator, with one argument after the other made wrong.
void check_refusals(const std::string& name) {
  const Device device;
  const Family family(name);
  const Json null;
  std::map<std::string, int> seen;
  for (const Json& json : family.json.at("cases")) {
    const auto op = json.at("op").get<std::string>();
    if (seen[op]++ > 0) continue;
    const Json& accepted = family.json.at("operators").at(op);
    const auto says = [&](const char* what, std::size_t argument) {
      const auto list = accepted.find(what);
      return list != accepted.end() && std::find(list->begin(), list->end(), argument) != list->end();
    };
    Case call(json, family.file);
    const auto refused = [&](const std::string& what, const Wrong& wrong, int expected) {
      std::uint64_t size = 0;
      aclOpExecutor* executor = nullptr;
      const int code = call.prepare(&size, &executor, wrong);
      call.destroy();
      CHECK_MESSAGE(code == expected, call.name, ", argument ", wrong.argument, ": ", what);
      if (code != ACL_SUCCESS) {
        CHECK_MESSAGE(recent_error().find(op) != std::string::npos, call.name);
      } else if (executor != nullptr) {
        aclDestroyAclOpExecutor(executor);
      }
    };
    for (std::size_t i = 0; i < call.op.arguments; ++i) {
      if (!call.argument(i).is_object()) continue;
      if (!says("optional", i)) refused("null", {i, &null}, ACLNN_ERR_PARAM_NULLPTR);
      if (call.tensors(i).empty()) continue;
      using Flaw = Placed::Flaw;
      if (!says("any_dtype", i))
        refused("a dtype that it cannot have", {i, nullptr, Flaw::type}, ACLNN_ERR_PARAM_INVALID);
      if (!says("any_kind", i)) refused("a dtype of another kind", {i, nullptr, Flaw::kind}, ACLNN_ERR_PARAM_INVALID);
      if (!says("any_size", i)) refused("a dtype of another size", {i, nullptr, Flaw::mix}, ACLNN_ERR_PARAM_INVALID);
      if (!says("any_shape", i)) refused("another shape", {i, nullptr, Flaw::shape}, ACLNN_ERR_PARAM_INVALID);
      if (says("contiguous", i)) refused("with gaps", {i, nullptr, Flaw::gaps}, ACLNN_ERR_PARAM_INVALID);
      CHECK_MESSAGE(faults() == "", call.name);
      if (call.tensors(i)[0]->count() == 0) continue;
      refused("a misaligned address", {i, nullptr, Flaw::address}, ACLNN_ERR_PARAM_INVALID);
      CHECK_MESSAGE(faults() != "", call.name);
    }
    if (accepted.contains("refuses"))
      for (const Json& pair : accepted.at("refuses"))
        refused(pair[1].dump(), {pair[0].get<std::size_t>(), &pair[1]}, ACLNN_ERR_PARAM_INVALID);
    CHECK_MESSAGE(faults() == "", call.name);
  }
}

TEST_CASE("stand-in operators: matrix products are PyTorch's") { check_cases("matmul"); }
TEST_CASE("stand-in operators: element-wise ones are PyTorch's") { check_cases("elementwise"); }
TEST_CASE("stand-in operators: copies and fills are PyTorch's") { check_cases("copies"); }
TEST_CASE("stand-in operators: reductions are PyTorch's") { check_cases("reduce"); }
TEST_CASE("stand-in operators: those with indices are PyTorch's") { check_cases("index"); }
TEST_CASE("stand-in operators: those on lists are PyTorch's") { check_cases("foreach"); }
TEST_CASE("stand-in operators: AdamW is PyTorch's") { check_cases("optimizer"); }
TEST_CASE("stand-in operators: norms and activations are PyTorch's") { check_cases("norm"); }
TEST_CASE("stand-in operators: losses are PyTorch's") { check_cases("loss"); }
TEST_CASE("stand-in operators: rotary embeddings are PyTorch's") { check_cases("rotary"); }
TEST_CASE("stand-in operators: attention is PyTorch's") { check_cases("attention"); }
TEST_CASE("stand-in operators: dropout of a given mask is PyTorch's") { check_cases("dropout"); }

constexpr const char* kFamilies[] = {"matmul",    "elementwise", "copies", "reduce", "index",     "foreach",
                                     "optimizer", "norm",        "loss",   "rotary", "attention", "dropout"};

TEST_CASE("stand-in operators: wrong arguments are refused with the documented code") {
  for (const char* family : kFamilies) check_refusals(family);
}

TEST_CASE("stand-in operators: each has a case, but for those of random numbers") {
  std::set<std::string> called{"aclnnInplaceNormal", "aclnnInplaceUniform"};
  std::set<std::string> all;
  for (const auto& [name, op] : all_operators()) all.insert(name);
  for (const char* family : kFamilies) {
    const Json json = io::read_json(std::string(LORA_FIXTURES "/ascend_operators/") + family + ".json");
    for (const Json& one : json.at("cases")) called.insert(one.at("op").get<std::string>());
  }
  CHECK(called == all);
}

}  // namespace
}  // namespace operators_test
