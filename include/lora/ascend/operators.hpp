#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lora/ascend/library.hpp"
#include "lora/core/error.hpp"

namespace lora::ascend {

/// An operator of the vendor's library that training uses: a pair of functions, aclnnNAMEGetWorkspaceSize and
/// aclnnNAME.
struct Operator {
  std::string_view name;
  std::string_view family;
  std::string_view fallback = "";  ///< what does its work where it is missing; empty: nothing does
};

/// Those of CANN 8.1 unless a fallback is named.
constexpr Operator operators[] = {
    {"Mm", "products"},
    {"BatchMatMul", "products"},
    {"InplaceAddmm", "products"},
    {"Add", "elementwise"},
    {"InplaceAdd", "elementwise"},
    {"Mul", "elementwise"},
    {"Muls", "elementwise"},
    {"InplaceMuls", "elementwise"},
    {"Cast", "elementwise"},
    {"InplaceCopy", "elementwise"},
    {"InplaceZero", "elementwise"},
    {"RmsNorm", "norms"},
    {"RmsNormGrad", "norms"},
    {"RotaryPositionEmbedding", "rotary embedding", "Mul, Add and Cat"},
    {"SwiGlu", "activation"},
    {"SwiGluGrad", "activation"},
    {"FlashAttentionVarLenScore", "attention"},
    {"FlashAttentionUnpaddingScoreGrad", "attention"},
    {"IncreFlashAttentionV4", "attention", "FlashAttentionVarLenScore"},
    {"Embedding", "embedding"},
    {"EmbeddingDenseBackward", "embedding"},
    {"LogSoftmax", "loss"},
    {"CrossEntropyLoss", "loss"},
    {"CrossEntropyLossGrad", "loss"},
    {"ApplyAdamWV2", "optimizer"},
    {"DropoutDoMask", "dropout"},
    {"ReduceSum", "reductions"},
    {"IsFinite", "reductions"},
    {"All", "reductions"},
    {"ForeachNonFiniteCheckAndUnscale", "reductions", "IsFinite, All and Muls"},
    {"WeightQuantBatchMatmulV2", "quantised products", "weights decoded at load"},
};

/// Where operators are: in version 8's library or in the newer ones', and what they need of the toolkit.
constexpr std::string_view operator_libraries[] = {"libnnopbase.so", "libopapi.so", "libopapi_math.so",
                                                   "libopapi_nn.so", "libopapi_transformer.so"};

inline bool has(const Libraries& libraries, const Operator& wanted) {
  const std::string name = concat("aclnn", wanted.name);
  return libraries.find<void()>(name + "GetWorkspaceSize") != nullptr && libraries.find<void()>(name) != nullptr;
}

/// Those that the libraries lack.
inline std::vector<Operator> missing_operators(const Libraries& libraries) {
  std::vector<Operator> missing;
  for (const Operator& one : operators)
    if (!has(libraries, one)) missing.push_back(one);
  return missing;
}

}  // namespace lora::ascend
