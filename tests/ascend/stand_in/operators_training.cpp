/// Dropout, AdamW and the check of scaled gradients.
#include <algorithm>
#include <cmath>

#include "operator.hpp"

using namespace stand_in;

namespace {

/// Bytes of a mask with a bit for each element.
std::int64_t mask_bytes(std::int64_t elements) { return (elements + 127) / 128 * 128 / 8; }

std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

int make_mask(const char* name, const aclIntArray* shape, double prob, int64_t seed, int64_t offset, aclDataType type,
              aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare(name, workspaceSize, executor, [&](Operator& op) {
    const Dims dims = op.numbers(shape, "shape");
    const Tensor mask = op.output(out, "out", {ACL_UINT8});
    demand(prob >= 0 && prob <= 1, "prob outside of [0, 1]");
    demand(type == ACL_FLOAT || type == ACL_FLOAT16 || type == ACL_BF16, "probDataType is no type of prob");
    demand(std::all_of(dims.begin(), dims.end(), [](std::int64_t size) { return size >= 0; }), "a negative dimension");
    const std::int64_t elements = count_of(dims);
    demand(mask.count() >= mask_bytes(elements), "out has " + std::to_string(mask.count()) + " bytes where " +
                                                     std::to_string(mask_bytes(elements)) + " are needed");
    need_contiguous(mask);
    op.kernel([=](const Launch& launch) {
      unsigned char* bytes = launch.bytes(mask);
      const std::uint64_t start = mixed(static_cast<std::uint64_t>(seed)) ^ mixed(~static_cast<std::uint64_t>(offset));
      for (std::int64_t i = 0; i < mask_bytes(elements); ++i) {
        unsigned byte = 0;
        for (int bit = 0; bit < 8; ++bit) {
          const std::uint64_t draw = mixed(start + static_cast<std::uint64_t>(8 * i + bit));
          if (static_cast<double>(draw >> 11) * 0x1p-53 >= prob) byte |= 1u << bit;
        }
        bytes[i] = static_cast<unsigned char>(byte);
      }
    });
  });
}

}  // namespace

extern "C" {

int aclnnDropoutGenMaskGetWorkspaceSize(const aclIntArray* shape, double prob, int64_t seed, int64_t offset,
                                        aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return make_mask("DropoutGenMask", shape, prob, seed, offset, ACL_FLOAT, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(DropoutGenMask)

int aclnnDropoutGenMaskV2GetWorkspaceSize(const aclIntArray* shape, double prob, int64_t seed, int64_t offset,
                                          aclDataType probDataType, aclTensor* out, uint64_t* workspaceSize,
                                          aclOpExecutor** executor) {
  return make_mask("DropoutGenMaskV2", shape, prob, seed, offset, probDataType, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(DropoutGenMaskV2)

int aclnnDropoutDoMaskGetWorkspaceSize(const aclTensor* self, const aclTensor* mask, double prob, aclTensor* out,
                                       uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("DropoutDoMask", workspaceSize, executor, [&](Operator& op) {
    const Tensor x = op.input(self, "self", kFloats), bits = op.input(mask, "mask", {ACL_UINT8});
    const Tensor y = op.output(out, "out", kFloats);
    same_shape(x, y);
    same_type(x, y);
    demand(prob >= 0 && prob <= 1, "prob outside of [0, 1]");
    demand(bits.count() >= mask_bytes(x.count()), "mask has " + std::to_string(bits.count()) + " bytes where " +
                                                      std::to_string(mask_bytes(x.count())) + " are needed");
    need_contiguous(bits);
    const double share = nearest(1 - prob, x.type);  // of what is kept, which is an operand in the elements' type
    op.kernel([=](const Launch& launch) {
      std::vector<double> values = launch(x).read();
      const unsigned char* keep = launch.bytes(bits);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = (keep[i / 8] >> (i % 8) & 1) != 0 ? values[i] / share : 0;
      launch(y).write(values);
    });
  });
}
STAND_IN_PHASE_TWO(DropoutDoMask)

int aclnnApplyAdamWV2GetWorkspaceSize(aclTensor* varRef, aclTensor* mRef, aclTensor* vRef,
                                      aclTensor* maxGradNormOptionalRef, const aclTensor* grad, const aclTensor* step,
                                      float lr, float beta1, float beta2, float weightDecay, float eps, bool amsgrad,
                                      bool maximize, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("ApplyAdamWV2", workspaceSize, executor, [&](Operator& op) {
    const Tensor var = op.in_place(varRef, "varRef", kFloats), m = op.in_place(mRef, "mRef", kFloats);
    const Tensor v = op.in_place(vRef, "vRef", kFloats);
    demand(!amsgrad || maxGradNormOptionalRef != nullptr, "maxGradNormOptionalRef is null with amsgrad");
    Tensor most;
    if (maxGradNormOptionalRef != nullptr)
      most = op.in_place(maxGradNormOptionalRef, "maxGradNormOptionalRef", kFloats);
    const Tensor gradient = op.input(grad, "grad", kFloats), steps = op.input(step, "step", {ACL_INT64, ACL_FLOAT});
    for (const Tensor& one : {m, v}) {
      same_shape(var, one);
      same_type(var, one);
    }
    if (most.present()) {
      same_shape(var, most);
      same_type(var, most);
    }
    same_shape(var, gradient);
    if (engine().setting("mixed_adamw") == 0 || var.type != ACL_FLOAT) same_type(var, gradient);
    demand(steps.count() == 1 && steps.rank() <= 1, "step is not one number");
    op.kernel([=](const Launch& launch) {
      const double rate = static_cast<double>(lr), b1 = static_cast<double>(beta1), b2 = static_cast<double>(beta2);
      const double decay = static_cast<double>(weightDecay), small = static_cast<double>(eps);
      std::vector<double> w = launch(var).read(), first = launch(m).read(), second = launch(v).read();
      std::vector<double> largest = amsgrad ? launch(most).read() : std::vector<double>{};
      const std::vector<double> g = launch(gradient).read();
      const double t = launch(steps).read().front() + 1;  // what comes in are the steps that were done before
      const double size = rate / (1 - std::pow(b1, t)), correction = 1 - std::pow(b2, t);
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double slope = maximize ? -g[i] : g[i];
        w[i] *= 1 - rate * decay;
        first[i] += (slope - first[i]) * (1 - b1);
        second[i] = b2 * second[i] + (1 - b2) * slope * slope;
        if (amsgrad) largest[i] = std::max(largest[i], second[i]);
        w[i] -= size * first[i] / (std::sqrt((amsgrad ? largest[i] : second[i]) / correction) + small);
      }
      launch(var).write(w);
      launch(m).write(first);
      launch(v).write(second);
      if (amsgrad) launch(most).write(largest);
    });
  });
}
STAND_IN_PHASE_TWO(ApplyAdamWV2)

int aclnnForeachNonFiniteCheckAndUnscaleGetWorkspaceSize(const aclTensorList* scaledGrads, const aclTensor* foundInf,
                                                         const aclTensor* invScale, uint64_t* workspaceSize,
                                                         aclOpExecutor** executor) {
  return prepare("ForeachNonFiniteCheckAndUnscale", workspaceSize, executor, [&](Operator& op) {
    const std::vector<Tensor> grads = op.in_place(scaledGrads, "scaledGrads", kFloats);
    const Tensor found = op.in_place(foundInf, "foundInf", {ACL_FLOAT});
    const Tensor scale = op.input(invScale, "invScale", {ACL_FLOAT});
    demand(!grads.empty() && grads.size() <= 256, "a list of " + std::to_string(grads.size()) + " tensors");
    for (const Tensor& one : grads) {
      same_type(grads.front(), one);
      need_contiguous(one);
    }
    demand(found.count() == 1 && scale.count() == 1, "foundInf or invScale is not one number");
    op.kernel([=](const Launch& launch) {
      const double factor = launch(scale).read().front();
      bool all_finite = true;
      for (const Tensor& one : grads) {
        std::vector<double> values = launch(one).read();
        for (double& value : values) {
          all_finite = all_finite && std::isfinite(value);
          value *= factor;
        }
        launch(one).write(values);
      }
      if (!all_finite) launch(found).put(0, 1);
    });
  });
}
STAND_IN_PHASE_TWO(ForeachNonFiniteCheckAndUnscale)

}  // extern "C"
