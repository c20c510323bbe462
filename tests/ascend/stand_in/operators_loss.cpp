/// Cross entropy and negative log likelihood.
#include <algorithm>
#include <cmath>
#include <string>

#include "operator.hpp"

using namespace stand_in;

namespace {

enum class Reduction { none, mean, sum };

Reduction reduction_of(const char* text) {
  if (text == nullptr) refuse("reduction is null", ACLNN_ERR_PARAM_NULLPTR);
  const std::string name = text;
  if (name == "none") return Reduction::none;
  if (name == "mean") return Reduction::mean;
  if (name == "sum") return Reduction::sum;
  refuse("reduction \"" + name + "\"");
}

void check_reduced(const Tensor& loss, Reduction reduction, std::int64_t rows) {
  if (reduction == Reduction::none) {
    need_shape(loss, {rows});
  } else {
    demand(loss.shape.empty() || loss.shape == Dims{1}, loss.name + " is no scalar");
  }
}

/// The class of each row, -1 for those that do not count.
std::vector<std::int64_t> classes_of(const Elements& target, std::int64_t ignored, std::int64_t classes) {
  std::vector<std::int64_t> all = target.read_integers();
  for (std::int64_t& one : all) {
    if (one == ignored) {
      one = -1;
    } else if (one < 0 || one >= classes) {
      throw Launch::Trap{ACL_ERROR_RT_AICORE_EXCEPTION,
                         "class " + std::to_string(one) + " of " + std::to_string(classes)};
    }
  }
  return all;
}

double weight_of(const std::vector<double>& weights, std::int64_t one) {
  return weights.empty() ? 1 : weights[static_cast<std::size_t>(one)];
}

void check_matrix(const Tensor& input, const Tensor& target, const Tensor& weight) {
  demand(input.rank() == 2, input.name + " does not have 2 dimensions");
  need_shape(target, {input.shape[0]});
  if (weight.present()) need_shape(weight, {input.shape[1]});
}

}  // namespace

extern "C" {

int aclnnCrossEntropyLossGetWorkspaceSize(const aclTensor* input, const aclTensor* target,
                                          const aclTensor* weightOptional, char* reductionOptional, int64_t ignoreIndex,
                                          double labelSmoothing, double lseSquareScaleForZloss, bool returnZloss,
                                          const aclTensor* lossOut, const aclTensor* logProbOut,
                                          const aclTensor* zlossOut, const aclTensor* lseForZlossOut,
                                          uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("CrossEntropyLoss", workspaceSize, executor, [&](Operator& op) {
    const Tensor x = op.input(input, "input", kFloats), classes = op.input(target, "target", kIndices);
    const Tensor weight = op.optional_input(weightOptional, "weightOptional", {ACL_FLOAT});
    const Reduction reduction = reduction_of(reductionOptional);
    const Tensor loss = op.packed_output(lossOut, "lossOut", kFloats);
    const Tensor log_prob = op.packed_output(logProbOut, "logProbOut", kFloats);
    // Nothing is written to these, but they are asked for.
    op.packed_output(zlossOut, "zlossOut", kFloats);
    op.packed_output(lseForZlossOut, "lseForZlossOut", kFloats);
    demand(!returnZloss && lseSquareScaleForZloss == 0, "z-loss is not supported");
    demand(labelSmoothing >= 0 && labelSmoothing < 1, "labelSmoothing outside of [0, 1)");
    check_matrix(x, classes, weight);
    check_reduced(loss, reduction, x.shape[0]);
    same_type(x, loss);
    same_type(x, log_prob);
    same_shape(x, log_prob);
    op.workspace(512 + static_cast<std::uint64_t>(x.shape[0]) * 8);
    op.kernel([=](const Launch& launch) {
      std::vector<double> values = launch(x).read();
      const auto width = static_cast<std::size_t>(x.shape[1]);
      const std::vector<std::int64_t> wanted = classes_of(launch(classes), ignoreIndex, x.shape[1]);
      const std::vector<double> weights = weight.present() ? launch(weight).read() : std::vector<double>{};
      std::vector<double> losses(wanted.size(), 0.0);
      double sum = 0, total = 0;
      for (std::size_t r = 0; r < wanted.size(); ++r) {
        double* row = values.data() + r * width;
        const double most = *std::max_element(row, row + width);
        double powers = 0;
        for (std::size_t i = 0; i < width; ++i) powers += std::exp(row[i] - most);
        const double log_sum = most + std::log(powers);
        double smooth = 0;
        for (std::size_t i = 0; i < width; ++i) {
          row[i] -= log_sum;
          if (labelSmoothing > 0) smooth -= row[i] * weight_of(weights, static_cast<std::int64_t>(i));
        }
        if (wanted[r] < 0) continue;
        const double share = weight_of(weights, wanted[r]);
        losses[r] = -(1 - labelSmoothing) * share * row[static_cast<std::size_t>(wanted[r])] +
                    labelSmoothing / static_cast<double>(width) * smooth;
        sum += losses[r];
        total += share;
      }
      launch(log_prob).write(values);
      if (reduction != Reduction::none) losses.assign(1, reduction == Reduction::mean ? sum / total : sum);
      launch(loss).write(losses);
    });
  });
}
STAND_IN_PHASE_TWO(CrossEntropyLoss)

int aclnnCrossEntropyLossGradGetWorkspaceSize(const aclTensor* gradLoss, const aclTensor* logProb,
                                              const aclTensor* target, const aclTensor* weightOptional,
                                              const aclTensor* gradZlossOptional, const aclTensor* lseForZlossOptional,
                                              char* reductionOptional, int64_t ignoreIndex, double labelSmoothing,
                                              double lseSquareScaleForZloss, const aclTensor* out,
                                              uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("CrossEntropyLossGrad", workspaceSize, executor, [&](Operator& op) {
    const Tensor grad = op.input(gradLoss, "gradLoss", kFloats), log_prob = op.input(logProb, "logProb", kFloats);
    const Tensor classes = op.input(target, "target", {ACL_INT64});
    const Tensor weight = op.optional_input(weightOptional, "weightOptional", {ACL_FLOAT});
    demand(gradZlossOptional == nullptr && lseForZlossOptional == nullptr && lseSquareScaleForZloss == 0,
           "z-loss is not supported");
    const Reduction reduction = reduction_of(reductionOptional);
    demand(labelSmoothing == 0, "labelSmoothing is not supported");
    const Tensor dx = op.packed_output(out, "out", kFloats);
    check_matrix(log_prob, classes, weight);
    check_reduced(grad, reduction, log_prob.shape[0]);
    same_type(log_prob, grad);
    same_type(log_prob, dx);
    same_shape(log_prob, dx);
    for (const Tensor& one : {grad, log_prob, classes}) need_contiguous(one);
    op.workspace(0);
    op.kernel([=](const Launch& launch) {
      std::vector<double> values = launch(log_prob).read();
      const auto width = static_cast<std::size_t>(log_prob.shape[1]);
      const std::vector<double> grads = launch(grad).read();
      const std::vector<std::int64_t> wanted = classes_of(launch(classes), ignoreIndex, log_prob.shape[1]);
      const std::vector<double> weights = weight.present() ? launch(weight).read() : std::vector<double>{};
      double total = 0;
      for (const std::int64_t one : wanted) total += one < 0 ? 0 : weight_of(weights, one);
      for (std::size_t r = 0; r < wanted.size(); ++r) {
        double* row = values.data() + r * width;
        if (wanted[r] < 0) {
          std::fill(row, row + width, 0.0);
          continue;
        }
        double factor = grads[reduction == Reduction::none ? r : 0] * weight_of(weights, wanted[r]);
        if (reduction == Reduction::mean) factor /= total;
        for (std::size_t i = 0; i < width; ++i)
          row[i] = factor * (std::exp(row[i]) - (static_cast<std::int64_t>(i) == wanted[r] ? 1 : 0));
      }
      launch(dx).write(values);
    });
  });
}
STAND_IN_PHASE_TWO(CrossEntropyLossGrad)

int aclnnNLLLossGetWorkspaceSize(const aclTensor* self, const aclTensor* target, const aclTensor* weight,
                                 int64_t reduction, int64_t ignoreIndex, aclTensor* out, aclTensor* totalWeightOut,
                                 uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("NLLLoss", workspaceSize, executor, [&](Operator& op) {
    const Tensor x = op.input(self, "self", kFloats), classes = op.input(target, "target", kIndices);
    const Tensor shares = op.input(weight, "weight", kFloats);
    const Tensor loss = op.output(out, "out", kFloats), total = op.output(totalWeightOut, "totalWeightOut", kFloats);
    demand(reduction >= 0 && reduction <= 2, "reduction " + std::to_string(reduction));
    check_matrix(x, classes, shares);
    check_reduced(loss, static_cast<Reduction>(reduction), x.shape[0]);
    check_reduced(total, Reduction::sum, 0);
    for (const Tensor& one : {shares, loss, total}) same_type(x, one);
    op.kernel([=](const Launch& launch) {
      const std::vector<double> values = launch(x).read(), weights = launch(shares).read();
      const std::vector<std::int64_t> wanted = classes_of(launch(classes), ignoreIndex, x.shape[1]);
      std::vector<double> losses(wanted.size(), 0.0);
      double sum = 0, of_weights = 0;
      for (std::size_t r = 0; r < wanted.size(); ++r) {
        if (wanted[r] < 0) continue;
        const double share = weight_of(weights, wanted[r]);
        losses[r] = -share * values[r * static_cast<std::size_t>(x.shape[1]) + static_cast<std::size_t>(wanted[r])];
        sum += losses[r];
        of_weights += share;
      }
      if (reduction != 0) losses.assign(1, reduction == 1 ? sum / of_weights : sum);
      launch(loss).write(losses);
      launch(total).write({of_weights});
    });
  });
}
STAND_IN_PHASE_TWO(NLLLoss)

int aclnnNLLLossBackwardGetWorkspaceSize(const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target,
                                         const aclTensor* weight, int64_t reduction, int64_t ignoreIndex,
                                         const aclTensor* totalWeight, aclTensor* out, uint64_t* workspaceSize,
                                         aclOpExecutor** executor) {
  return prepare("NLLLossBackward", workspaceSize, executor, [&](Operator& op) {
    const Tensor grad = op.input(gradOutput, "gradOutput", kFloats), x = op.input(self, "self", kFloats);
    const Tensor classes = op.input(target, "target", kIndices), shares = op.input(weight, "weight", kFloats);
    const Tensor total = op.input(totalWeight, "totalWeight", kFloats), dx = op.output(out, "out", kFloats);
    demand(reduction >= 0 && reduction <= 2, "reduction " + std::to_string(reduction));
    check_matrix(x, classes, shares);
    check_reduced(grad, static_cast<Reduction>(reduction), x.shape[0]);
    check_reduced(total, Reduction::sum, 0);
    for (const Tensor& one : {grad, shares, total, dx}) same_type(x, one);
    same_shape(x, dx);
    op.kernel([=](const Launch& launch) {
      const std::vector<double> grads = launch(grad).read(), weights = launch(shares).read();
      const double whole = launch(total).read().front();
      const std::vector<std::int64_t> wanted = classes_of(launch(classes), ignoreIndex, x.shape[1]);
      std::vector<double> values(static_cast<std::size_t>(x.count()), 0.0);
      for (std::size_t r = 0; r < wanted.size(); ++r) {
        if (wanted[r] < 0) continue;
        const double factor = -weight_of(weights, wanted[r]) * grads[reduction == 0 ? r : 0];
        values[r * static_cast<std::size_t>(x.shape[1]) + static_cast<std::size_t>(wanted[r])] =
            reduction == 1 ? factor / whole : factor;
      }
      launch(dx).write(values);
    });
  });
}
STAND_IN_PHASE_TWO(NLLLossBackward)

}  // extern "C"
