#include "lora/train/tensor_names.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace tensor_names_test {

using namespace lora;
using train::tensor_names;

TEST_CASE("tensor names: what differs in one part is joined, layers first") {
  CHECK(tensor_names({}) == "");
  CHECK(tensor_names({"model.norm.weight"}) == "model.norm.weight");
  std::vector<std::string> names{"model.embed_tokens.weight"};
  for (int layer = 0; layer < 12; ++layer)
    for (const char* name : {"self_attn.q_proj.weight", "self_attn.q_proj.bias", "self_attn.k_proj.weight",
                             "self_attn.k_proj.bias", "self_attn.o_proj.weight", "mlp.up_proj.weight"})
      names.push_back(concat("model.layers.", layer, ".", std::string_view(name)));
  names.push_back("model.norm.weight");
  CHECK(tensor_names(names) ==
        "model.{embed_tokens,norm}.weight, model.layers.0..11.self_attn.{q_proj,k_proj}.{weight,bias}, "
        "model.layers.0..11.self_attn.o_proj.weight, model.layers.0..11.mlp.up_proj.weight");
}

TEST_CASE("tensor names: layers are ranges, wherever they begin and what they leave out") {
  CHECK(tensor_names({"l.3.w", "l.1.w", "l.2.w", "l.7.w", "l.10.w"}) == "l.{1..3,7,10}.w");
  CHECK(tensor_names({"l.0.a", "l.1.a", "l.1.b"}) == "l.0..1.a, l.1.b");
  CHECK(tensor_names({"l.999999998.w", "l.999999999.w"}) == "l.999999998..999999999.w");
  CHECK(tensor_names({"l.1234567890.w", "l.2.w"}) == "l.{1234567890,2}.w");  // too large for a layer
  CHECK(tensor_names({"a.b", "a", "a.b.c"}) == "a.b, a, a.b.c");
}

}  // namespace tensor_names_test
