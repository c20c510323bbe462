#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "lora/ascend/runtime/library.hpp"
#include "lora/ascend/runtime/types.hpp"
#include "lora/core/error.hpp"

namespace lora::ascend {

/// An operator of the vendor's library: aclnnNAMEGetWorkspaceSize checks the arguments and makes an executor, aclnnNAME
/// queues it and ends it.
template <class... Arguments>
struct Operator {
  using Sizes = aclnnStatus(Arguments..., std::uint64_t* workspace_bytes, aclOpExecutor** executor);
  using Run = aclnnStatus(void* workspace, std::uint64_t workspace_bytes, aclOpExecutor* executor, aclrtStream stream);

  std::string_view name;
  std::string_view family;
  std::string_view fallback = "";  ///< what does its work where it is missing; empty: nothing does
  Sizes* sizes = nullptr;
  Run* run = nullptr;

  bool there() const { return sizes != nullptr && run != nullptr; }
};

/// Those that are called, with their parameters as the vendor's headers declare them in version 8.1; what these don't
/// have is declared from its documentation.
struct Operators {
  using In = const aclTensor*;
  using Out = aclTensor*;
  using Scalar = const aclScalar*;
  using Ints = const aclIntArray*;
  using i64 = std::int64_t;
  using i8 = std::int8_t;

  Operator<In, In, Out, i8> mm{"Mm", "products"};
  Operator<In, In, In, Scalar, Scalar, i8> inplace_addmm{"InplaceAddmm", "products"};
  Operator<In, In, Scalar> inplace_add{"InplaceAdd", "elementwise"};
  Operator<In, In, Out> mul{"Mul", "elementwise"};
  Operator<Out, In> inplace_mul{"InplaceMul", "quantized weights"};
  Operator<In, Scalar, Out> muls{"Muls", "elementwise"};
  Operator<In, In, In, Scalar> inplace_addcmul{"InplaceAddcmul", "elementwise"};
  Operator<Out, In> inplace_copy{"InplaceCopy", "elementwise"};
  Operator<Out> inplace_zero{"InplaceZero", "elementwise"};
  Operator<Out, Scalar> inplace_fill_scalar{"InplaceFillScalar", "elementwise"};
  Operator<In, i64, i64, i64, i64, Out> slice{"Slice", "elementwise"};
  Operator<const aclTensorList*, i64, Out> cat{"Cat", "elementwise"};
  Operator<Out, i64, In, In> inplace_index_copy{"InplaceIndexCopy", "elementwise"};
  Operator<In, In, double, Out> dropout_do_mask{"DropoutDoMask", "dropout"};
  Operator<In, In, double, In, In> rms_norm{"RmsNorm", "norms"};
  Operator<In, In, In, In, In, In> rms_norm_grad{"RmsNormGrad", "norms"};
  Operator<In, In, In, i64, Out> rotary_position_embedding{"RotaryPositionEmbedding", "rotary embedding",
                                                           "Mul and InplaceAddcmul"};
  Operator<In, i64, In> swi_glu{"SwiGlu", "activation"};
  Operator<In, In, i64, In> swi_glu_grad{"SwiGluGrad", "activation"};
  Operator<In, i64, i64, bool, Out, Out> ge_glu{"GeGluV3", "activation by GELU", "models whose gates are SiLU"};
  Operator<In, In, In, i64, i64, bool, Out> ge_glu_grad{"GeGluV3Backward", "activation by GELU",
                                                        "models whose gates are SiLU"};
  Operator<In, In, In, In, In, In, In, Ints, Ints, Ints, double, double, i64, i64, i64, char*, i64, i64, In, In, In, In>
      flash_attention{"FlashAttentionVarLenScore", "attention"};
  Operator<In, In, In, In, In, In, In, In, In, In, In, In, Ints, Ints, Ints, double, double, i64, i64, i64, char*, i64,
           i64, In, In, In, In>
      flash_attention_grad{"FlashAttentionUnpaddingScoreGrad", "attention"};
  Operator<In, In, In, In, In, In, In, char*, In, In, In> ring_attention_update{
      "RingAttentionUpdate", "attention over trees", "sequences that share nothing"};
  Operator<In, In, In> embedding{"Embedding", "embedding"};
  Operator<In, In, std::uint64_t, std::uint64_t, bool, In> embedding_dense_backward{"EmbeddingDenseBackward",
                                                                                    "embedding"};
  Operator<In, In, In, char*, i64, double, double, bool, In, In, In, In> cross_entropy_loss{"CrossEntropyLoss", "loss"};
  Operator<In, In, In, In, In, In, char*, i64, double, double, In> cross_entropy_loss_grad{"CrossEntropyLossGrad",
                                                                                           "loss"};
  Operator<In, Ints, bool, Out> amax{"Amax", "loss"};
  Operator<In, i64, In, Out> gather{"Gather", "loss"};
  Operator<Out, Out, Out, Out, In, In, float, float, float, float, float, bool, bool> apply_adam_w_v2{"ApplyAdamWV2",
                                                                                                      "optimizer"};
  Operator<In, Ints, bool, aclDataType, Out> reduce_sum{"ReduceSum", "reductions"};

  template <class F>
  void for_each(F&& f) {
    f(mm);
    f(inplace_addmm);
    f(inplace_add);
    f(mul);
    f(inplace_mul);
    f(muls);
    f(inplace_addcmul);
    f(inplace_copy);
    f(inplace_zero);
    f(inplace_fill_scalar);
    f(slice);
    f(cat);
    f(inplace_index_copy);
    f(dropout_do_mask);
    f(rms_norm);
    f(rms_norm_grad);
    f(rotary_position_embedding);
    f(swi_glu);
    f(swi_glu_grad);
    f(ge_glu);
    f(ge_glu_grad);
    f(flash_attention);
    f(flash_attention_grad);
    f(ring_attention_update);
    f(embedding);
    f(embedding_dense_backward);
    f(cross_entropy_loss);
    f(cross_entropy_loss_grad);
    f(amax);
    f(gather);
    f(apply_adam_w_v2);
    f(reduce_sum);
  }
};

/// Libraries with the operators, and with what they need of the toolkit: those of newer toolkits, which have split them
/// up, and that of version 8, which newer ones still ship, deprecated. The vendor wants only one kind in a process: the
/// old one is opened beside the others only where these lack an operator, and searched last, as torch_npu does.
constexpr std::string_view operator_libraries[] = {"libnnopbase.so", "libopapi_math.so", "libopapi_nn.so",
                                                   "libopapi_transformer.so"};
constexpr std::string_view old_operator_library = "libopapi.so";

/// Whether an operator was found, for error messages and reports.
struct OperatorInfo {
  std::string_view name, family, fallback;
  bool there = false;
  bool left_out = false;  ///< as LORA_ASCEND_WITHOUT asks
};

/// Finds the operators, but for those that LORA_ASCEND_WITHOUT names, separated by commas, where one works wrongly.
/// Throws   ConfigError for a name that is none of theirs
inline std::vector<OperatorInfo> load_operators(Operators& operators, const Libraries& libraries) {
  const char* const without = std::getenv("LORA_ASCEND_WITHOUT");
  std::vector<std::string> left_out;
  for (std::string_view rest = without != nullptr ? without : ""; !rest.empty();) {
    const auto comma = rest.find(',');
    if (const auto name = rest.substr(0, comma); !name.empty()) left_out.emplace_back(name);
    rest.remove_prefix(comma == rest.npos ? rest.size() : comma + 1);
  }
  std::vector<OperatorInfo> found;
  operators.for_each([&]<class... Arguments>(Operator<Arguments...>& one) {
    const std::string name = concat("aclnn", one.name);
    const bool leaves_out = std::erase(left_out, one.name) > 0;
    if (!leaves_out) {
      one.sizes = libraries.find<typename Operator<Arguments...>::Sizes>(name + "GetWorkspaceSize");
      one.run = libraries.find<typename Operator<Arguments...>::Run>(name);
    }
    found.push_back({one.name, one.family, one.fallback, one.there(), leaves_out});
  });
  if (!left_out.empty())
    fail<ConfigError>("the environment's LORA_ASCEND_WITHOUT names '", left_out.front(),
                      "', which is no operator that is called; expected names such as RotaryPositionEmbedding");
  return found;
}

}  // namespace lora::ascend
