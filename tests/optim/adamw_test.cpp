#include "lora/optim/adamw.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/core/random.hpp"
#include "lora/cpu/kernels/elementwise.hpp"
#include "lora/cpu/kernels/optimizer.hpp"
#include "lora/cpu/kernels/reduce.hpp"
#include "lora/optim/clip.hpp"
#include "lora/optim/host.hpp"
#include "lora/tensor/staging.hpp"
#include "support/proof_kernels.hpp"

namespace adamw_test {

using namespace lora;
using namespace lora::optim;
using Dev = cpu::Device;

namespace {

/// Two parameters, w (2, 3) and b (1, 2), with gradients that change from step to step.
template <class T>
struct Problem {
  Dev dev{2};
  nn::ParamStore<Dev, T> params{};
  nn::Param<Dev, T> w = params.add(2, 3), b;
  Tensor<Dev, double> norm{dev, 1, 1};

  /// b is of `group`.
  explicit Problem(Index group = 0) : b(params.add(1, 2, group)) {
    params.name(w, "w", 0, 2);
    params.name(b, "b", 0, 1);
    params.build(dev);
    copy_from_host<Dev, T>(dev, std::vector<T>{0.5, -1.25, 2.0, 0.125, 3.0, -0.75}, w.value());
    copy_from_host<Dev, T>(dev, std::vector<T>{1.0, -2.0}, b.value());
  }

  void make_gradients(int s) {
    std::vector<T> gw, gb{static_cast<T>(0.25 * (s - 2)), static_cast<T>(s % 2 == 0 ? 1.5 : -1.5)};
    for (int i = 0; i < 3; ++i) gw.push_back(static_cast<T>(std::sin(1.0 * s + i)));
    for (int i = 0; i < 3; ++i) gw.push_back(static_cast<T>(2 * std::cos(0.5 * s + i)));
    if (w.trains()) copy_from_host<Dev, T>(dev, gw, w.grad());
    if (b.trains()) copy_from_host<Dev, T>(dev, gb, b.grad());
  }
  double gradient_norm() {
    kernel::fill(dev, norm.view(), 0.0);
    add_squared_norm(dev, params, norm.view());
    return std::sqrt(to_host(dev, norm.view())[0]);
  }
  std::vector<T> values() {
    auto all = to_host(dev, w.value());
    for (const T value : to_host(dev, b.value())) all.push_back(value);
    return all;
  }
};

constexpr AdamWSettings settings{0.8, 0.95, 1e-6, 0.1};
constexpr double factors[] = {0.0, 0.5, 1.0, 0.75, 0.5, 0.25};

}  // namespace

TEST_CASE("adamw: six clipped steps with weight decay equal PyTorch's") {
  // torch.optim.AdamW(lr=1e-2, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1) after clip_grad_norm_(params, 2)
  const double norms[] = {3.145681858062744, 3.087920665740967, 3.074125289916992,
                          3.14957857131958,  3.223726272583008, 3.2395384311676025};
  const double expected[] = {0.479634613, -1.25875771,  1.99662471, 0.10266652,
                             2.99721718,  -0.718388915, 1.00676835, -1.9968226};
  Problem<float> problem;
  AdamW<Dev, float> optimizer(problem.dev, problem.params, settings);
  for (int s = 0; s < 6; ++s) {
    problem.make_gradients(s);
    const double norm = problem.gradient_norm();
    CHECK(norm == doctest::Approx(norms[s]).epsilon(1e-6));
    optimizer.step(problem.dev, 1e-2 * factors[s], clip_factor(norm, 2));
  }
  CHECK(optimizer.updates() == 6);
  const auto values = problem.values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    // Six roundings of values below 4, and of their updates in another order of operations.
    CHECK(values[i] == doctest::Approx(expected[i]).scale(1).epsilon(6 * 0x1p-22));
  }
}

TEST_CASE("adamw: in double it is the published formula") {
  Problem<double> problem;
  AdamW<Dev, double> optimizer(problem.dev, problem.params, settings);
  auto w = problem.values();
  std::vector<double> m(w.size()), v(w.size());
  for (int s = 0; s < 6; ++s) {
    problem.make_gradients(s);
    auto g = to_host(problem.dev, problem.w.grad());
    for (const double value : to_host(problem.dev, problem.b.grad())) g.push_back(value);
    const double lr = 1e-2 * factors[s], scale = 0.5;
    optimizer.step(problem.dev, lr, scale);
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] -= lr * 0.1 * w[i];
      m[i] = 0.8 * m[i] + 0.2 * scale * g[i];
      v[i] = 0.95 * v[i] + 0.05 * scale * g[i] * scale * g[i];
      const double m_hat = m[i] / (1 - std::pow(0.8, s + 1)), v_hat = v[i] / (1 - std::pow(0.95, s + 1));
      w[i] -= lr * m_hat / (std::sqrt(v_hat) + 1e-6);
    }
  }
  const auto values = problem.values();
  for (std::size_t i = 0; i < w.size(); ++i) CHECK(values[i] == doctest::Approx(w[i]).epsilon(1e-14));
}

TEST_CASE("adamw: state taken out and put into another optimizer goes on with the same bits") {
  Problem<float> whole, half;
  AdamW<Dev, float> one(whole.dev, whole.params, settings), first(half.dev, half.params, settings);
  for (int s = 0; s < 3; ++s) {
    for (auto* problem : {&whole, &half}) problem->make_gradients(s);
    one.step(whole.dev, 1e-2, 1);
    first.step(half.dev, 1e-2, 1);
  }
  std::vector<std::string> names;
  std::vector<std::vector<float>> state;
  first.for_each_state([&](const auto& tensor) {
    names.push_back(tensor.name);
    state.push_back(to_host(half.dev, tensor.own));
  });
  CHECK(names == std::vector<std::string>{"w.exp_avg", "w.exp_avg_sq", "b.exp_avg", "b.exp_avg_sq"});

  AdamW<Dev, float> second(half.dev, half.params, settings);
  second.set_updates(first.updates());
  std::size_t next = 0;
  second.for_each_state([&](const auto& tensor) { copy_from_host<Dev, float>(half.dev, state[next++], tensor.own); });
  for (int s = 3; s < 6; ++s) {
    for (auto* problem : {&whole, &half}) problem->make_gradients(s);
    one.step(whole.dev, 1e-2, 1);
    second.step(half.dev, 1e-2, 1);
  }
  CHECK(whole.values() == half.values());
}

TEST_CASE("adamw: groups have their own learning rate and decay") {
  Problem<float> problem(1), fast, slow;
  AdamW<Dev, float> both(problem.dev, problem.params, settings, {{1, 0.1}, {4, 0}});
  AdamW<Dev, float> one(fast.dev, fast.params, settings), other(slow.dev, slow.params, {0.8, 0.95, 1e-6, 0});
  for (int s = 0; s < 4; ++s) {
    for (auto* each : {&problem, &fast, &slow}) each->make_gradients(s);
    both.step(problem.dev, 1e-2, 1);
    one.step(fast.dev, 1e-2, 1);
    other.step(slow.dev, 4e-2, 1);
  }
  CHECK(to_host(problem.dev, problem.w.value()) == to_host(fast.dev, fast.w.value()));
  CHECK(to_host(problem.dev, problem.b.value()) == to_host(slow.dev, slow.b.value()));
}

namespace {

/// Tensors of several blocks in two groups, on a device whose memory the host can't touch; the values may lie in that
/// of the host.
struct Apart {
  using D = proof::Device;
  D dev{1, {.late_sources = true}};
  nn::ParamStore<D, float> params{};
  nn::Param<D, float> a = params.add(3, 1000), b = params.add(1, 100), c = params.add(5, 700, 1);

  explicit Apart(bool values_on_host = false) {
    if (values_on_host) params.keep_values_on_host([](const float*, float*, Index) {});
    params.name(a, "a", 0, 3);
    params.name(b, "b", 0, 1);
    params.name(c, "c", 0, 5);
    params.build(dev);
    set_values(1);
  }

  void set(View<D, float> target, std::uint64_t seed) {
    Random random(seed);
    std::vector<float> numbers(static_cast<std::size_t>(target.size()));
    for (float& number : numbers) number = 2 * random.uniform() - 1;
    copy_staged<D, float>(dev, numbers, target);
  }
  void set_values(std::uint64_t seed) {
    for (const auto* param : {&a, &b, &c}) params.fill(dev, *param, [&](D&, View<D, float> to) { set(to, ++seed); });
    params.refresh(dev);
  }
  void make_gradients(std::uint64_t seed) {
    for (const auto* param : {&a, &b, &c})
      if (param->trains()) set(param->grad(), ++seed);
  }
  std::vector<float> values() {
    std::vector<float> all;
    for (const auto* param : {&a, &b, &c}) {
      const Arena::Scope scope(dev.arena());
      for (const float value : to_host(dev, params.whole(dev, *param))) all.push_back(value);
    }
    return all;
  }
  template <class S, class Optimizer>
  std::vector<std::vector<float>> state(S& at, Optimizer& optimizer) {
    std::vector<std::vector<float>> all;
    optimizer.for_each_state([&](const auto& tensor) { all.push_back(to_host(at, tensor.own)); });
    return all;
  }
};

template <class Optimizer>
void take_step(Apart& problem, Optimizer& optimizer, std::uint64_t seed) {
  problem.make_gradients(seed);
  optimizer.step(problem.dev, 1e-2, 0.5);
}

}  // namespace

TEST_CASE("adamw: state on the host gives the same bits, in pieces of any size, whoever else changes values") {
  const std::vector<AdamWGroup> groups{{1, 0.1}, {4, 0}};
  for (const Index piece : {Index{1024}, Index{2048}, AdamW<proof::Device, float, Dev>::default_piece}) {
    for (const bool values_there : {false, true}) {
      CAPTURE(piece);
      CAPTURE(values_there);
      Apart here, beside(values_there);
      Dev host(2);
      AdamW<proof::Device, float> optimizer(here.dev, here.params, settings, groups);
      AdamW<proof::Device, float, Dev> apart(beside.dev, host, beside.params, settings, groups, {}, piece);
      const auto both = [&](const auto& f) {
        f(here, optimizer);
        f(beside, apart);
      };
      const auto steps = [&](std::uint64_t first, std::uint64_t last) {
        for (std::uint64_t s = first; s < last; ++s)
          both([&](Apart& problem, auto& stepper) {
            problem.make_gradients(10 * s);
            stepper.step(problem.dev, 1e-2, 0.5);
            problem.params.refresh_copies(problem.dev);
          });
        CHECK(here.values() == beside.values());
        CHECK(here.state(here.dev, optimizer) == beside.state(host, apart));
      };
      const auto train = [&](std::string_view names) {
        both([&](Apart& problem, auto& stepper) {
          problem.params.train(problem.dev, [=](std::string_view name) { return names.find(name) != names.npos; });
          stepper.follow(problem.dev);
        });
      };
      steps(1, 4);
      both([](Apart& problem, auto&) { problem.set_values(77); });
      steps(4, 6);
      train("bc");
      steps(6, 8);
      train("abc");
      steps(8, 10);
    }
  }
}

TEST_CASE(
    "adamw: of a state on the host nothing but gradients and values travels, and the host waits for pieces alone") {
  Apart problem;
  Dev host(1);
  AdamW<proof::Device, float, Dev> optimizer(problem.dev, host, problem.params, settings, {}, {}, 2048);
  const auto step = [&] {
    problem.make_gradients(3);
    const proof::Counts before = problem.dev.counts();
    optimizer.step(problem.dev, 1e-2, 1);
    return problem.dev.counts() - before;
  };
  constexpr std::size_t blocks = 4 + 4, pieces = 2 + 2, bytes = blocks * 1024 * sizeof(float);
  const proof::Counts first = step();
  CHECK(first.bytes_out == 2 * bytes);  // with the values
  for (int i = 0; i < 2; ++i) {
    const proof::Counts later = step();
    CHECK(later.bytes_out == bytes);
    CHECK(later.copies_out == pieces);
    CHECK(later.bytes_in == bytes);
    CHECK(later.copies_in == pieces);
    CHECK(later.waits == pieces);
    CHECK(later.allocations == 0);
    CHECK(later.launches == 0);
  }
  using Optimizer = decltype(optimizer);
  CHECK(Optimizer::host_bytes(problem.params, {}, 2048) == 3 * bytes + 4 * 2048 * sizeof(float));
  CHECK(Optimizer::host_bytes(problem.params) == 3 * bytes + 4 * 4096 * sizeof(float));
  // Values that lie on the host stay there.
  Apart there(true);
  Optimizer beside_them(there.dev, host, there.params, settings, {}, {}, 2048);
  there.make_gradients(3);
  const proof::Counts before = there.dev.counts();
  beside_them.step(there.dev, 1e-2, 1);
  const proof::Counts counts = there.dev.counts() - before;
  CHECK(counts.bytes_out == bytes);
  CHECK(counts.waits == pieces);
  CHECK(counts.bytes_in == 0);
  CHECK(Optimizer::host_bytes(there.params, {}, 2048) == 2 * bytes + 4 * 2048 * sizeof(float));
}

namespace {

/// By how many ranks the state is shared, and whether it lies on the host.
struct Way {
  int ranks;
  bool on_host;
};

/// The optimizers of all ranks, which step one after the other over the same parameters: each changes its own part.
class Ranks {
 public:
  using State = std::map<std::string, std::vector<float>>;

  Ranks(Apart& problem, const Way& way) : problem_(problem) {
    for (int rank = 0; rank < way.ranks; ++rank) {
      const AdamWShard shard{rank, way.ranks};
      if (way.on_host)
        apart_.push_back(std::make_unique<AdamW<Apart::D, float, Dev>>(problem.dev, host_, problem.params, settings,
                                                                       groups(), shard, 1024));
      else
        here_.push_back(std::make_unique<AdamW<Apart::D, float>>(problem.dev, problem.dev, problem.params, settings,
                                                                 groups(), shard));
    }
  }

  void steps(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t s = first; s < last; ++s) {
      problem_.make_gradients(10 * s);
      each([&](auto&, auto& optimizer) { optimizer.step(problem_.dev, 1e-2, 0.5); });
      problem_.params.refresh_copies(problem_.dev);
    }
  }
  /// Tensor by tensor, put together from the ranks' parts.
  State state() {
    State all;
    each([&](auto& at, auto& optimizer) {
      optimizer.for_each_state([&](const auto& tensor) {
        auto& whole = all[tensor.name];
        whole.resize(static_cast<std::size_t>(tensor.shape.count()));
        const auto own = to_host(at, tensor.own);
        std::copy(own.begin(), own.end(), whole.begin() + tensor.begins[static_cast<std::size_t>(optimizer.rank())]);
      });
    });
    return all;
  }
  void load(const State& state, Index updates) {
    each([&](auto& at, auto& optimizer) {
      optimizer.set_updates(updates);
      optimizer.for_each_state([&](const auto& tensor) {
        const auto rank = static_cast<std::size_t>(optimizer.rank());
        const Index begin = tensor.begins[rank], count = tensor.begins[rank + 1] - begin;
        if (count == 0) return;
        copy_from_host(
            at,
            std::span(state.at(tensor.name)).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
            tensor.own);
        at.synchronize();
      });
    });
  }

 private:
  static std::vector<AdamWGroup> groups() { return {{1, 0.1}, {4, 0}}; }
  template <class F>
  void each(const F& f) {
    for (auto& optimizer : here_) f(problem_.dev, *optimizer);
    for (auto& optimizer : apart_) f(host_, *optimizer);
  }

  Apart& problem_;
  Dev host_{1};
  std::vector<std::unique_ptr<AdamW<Apart::D, float>>> here_;
  std::vector<std::unique_ptr<AdamW<Apart::D, float, Dev>>> apart_;
};

}  // namespace

TEST_CASE("adamw: shared by ranks or not, on the host or not, resumed in any of these ways: always the same bits") {
  constexpr Way ways[] = {{1, false}, {1, true}, {2, false}, {2, true}, {3, false}, {3, true}};
  Apart whole;
  Ranks::State end;
  {
    Ranks optimizer(whole, ways[0]);
    optimizer.steps(1, 5);
    end = optimizer.state();
  }
  REQUIRE(end.size() == 6);
  for (const Way& first : ways)
    for (const Way& then : ways) {
      CAPTURE(first.ranks);
      CAPTURE(first.on_host);
      CAPTURE(then.ranks);
      CAPTURE(then.on_host);
      Apart problem;
      Ranks::State half;
      {
        Ranks optimizer(problem, first);
        optimizer.steps(1, 3);
        half = optimizer.state();
      }
      Ranks optimizer(problem, then);
      optimizer.load(half, 2);
      optimizer.steps(3, 5);
      CHECK(problem.values() == whole.values());
      CHECK(optimizer.state() == end);
    }
}

TEST_CASE("adamw: a step that failed before anything was changed can be made again, and leaves nothing behind") {
  Apart whole, broken;
  Dev host(1), other(1);
  AdamW<proof::Device, float, Dev> expected(whole.dev, other, whole.params, settings, {}, {}, 1024);
  AdamW<proof::Device, float, Dev> optimizer(broken.dev, host, broken.params, settings, {}, {}, 1024);
  // As the streams are put in order, where no event stays behind.
  broken.make_gradients(1);
  broken.dev.fail_stream_wait_after(0);
  CHECK_THROWS_WITH_AS(optimizer.step(broken.dev, 1e-2, 0.5), "[proof] a stream's wait was to fail", DeviceError);
  // As the values are read, before the first step, and as the gradient is.
  for (const std::uint64_t number : {1u, 2u}) {
    take_step(whole, expected, number);
    broken.make_gradients(number);
    broken.dev.fail_wait_after(0);
    CHECK_THROWS_WITH_AS(optimizer.step(broken.dev, 1e-2, 0.5), "[proof] a wait was to fail", DeviceError);
    CHECK(optimizer.updates() == static_cast<Index>(number) - 1);
    take_step(broken, optimizer, number);
    CHECK(optimizer.updates() == static_cast<Index>(number));
    CHECK(broken.values() == whole.values());
    CHECK(broken.state(host, optimizer) == whole.state(other, expected));
  }
}

TEST_CASE("adamw: where what trains is the same nothing moves, else a moment of a group at a time") {
  Apart problem;
  Dev host(1);
  using Optimizer = AdamW<proof::Device, float, Dev>;
  Optimizer optimizer(problem.dev, host, problem.params, settings, {}, {}, 1024);
  const auto places = [&] {
    std::vector<const float*> all;
    optimizer.for_each_state([&](const auto& tensor) { all.push_back(tensor.own.data()); });
    return all;
  };
  const auto before = places();
  host.allocated().restart_peak();
  const std::size_t held = host.allocated().now();
  optimizer.follow(problem.dev);
  CHECK(places() == before);
  CHECK(host.allocated().peak() == held);
  for (const std::string_view names : {"bc", "a", "abc", "c", "ab", "ac"}) {
    CAPTURE(names);
    const auto old = problem.params.sizes();
    problem.params.train(problem.dev, [=](std::string_view name) { return names.find(name) != names.npos; });
    const auto now = problem.params.sizes();
    host.allocated().restart_peak();
    optimizer.follow(problem.dev);
    CHECK(host.allocated().peak() == Optimizer::host_bytes_to_follow(old, now, {}, 0));
    CHECK(host.allocated().now() == Optimizer::host_bytes(now, {}, 0));
  }
  AdamW<proof::Device, float> shared(problem.dev, problem.dev, problem.params, settings, {}, {1, 2});
  CHECK_NOTHROW(shared.follow(problem.dev));
  problem.params.train(problem.dev, [](std::string_view name) { return name == "a"; });
  comm::Single<proof::Device> alone;
  for (comm::Communicator<proof::Device>* const ranks : {static_cast<comm::Communicator<proof::Device>*>(nullptr),
                                                         static_cast<comm::Communicator<proof::Device>*>(&alone)})
    CHECK_THROWS_WITH_AS(shared.follow(problem.dev, ranks),
                         "what trains changes, but the 2 ranks that share the optimizer's state aren't given", Error);
}

TEST_CASE("adamw: a state apart that begins with little exchanges as much as it comes to have") {
  Apart whole, apart;
  Dev host(1);
  const auto only_b = [](std::string_view name) { return name == "b"; };
  const auto all = [](std::string_view) { return true; };
  for (Apart* problem : {&whole, &apart}) problem->params.train(problem->dev, only_b);
  AdamW<proof::Device, float> expected(whole.dev, whole.params, settings);
  AdamW<proof::Device, float, Dev> optimizer(apart.dev, host, apart.params, settings, {}, {}, 4096);
  take_step(whole, expected, 10);
  take_step(apart, optimizer, 10);
  for (Apart* problem : {&whole, &apart}) problem->params.train(problem->dev, all);
  expected.follow(whole.dev);
  optimizer.follow(apart.dev);
  take_step(whole, expected, 20);
  take_step(apart, optimizer, 20);
  CHECK(apart.values() == whole.values());
  CHECK(apart.state(host, optimizer) == whole.state(whole.dev, expected));
}

TEST_CASE(
    "adamw: where memory is short as it follows, it does no step until it has followed, and keeps what trains on") {
  using Optimizer = AdamW<proof::Device, float>;
  const auto only = [](std::string_view names) {
    return [=](std::string_view name) { return names.find(name) != names.npos; };
  };
  struct Run {
    Apart problem{};
    Optimizer optimizer{problem.dev, problem.params, settings};

    void steps(std::uint64_t first, std::uint64_t last) {
      for (std::uint64_t s = first; s < last; ++s) {
        problem.make_gradients(10 * s);
        optimizer.step(problem.dev, 1e-2, 0.5);
        problem.params.refresh_copies(problem.dev);
      }
    }
    std::map<std::string, std::vector<float>> state() {
      std::map<std::string, std::vector<float>> all;
      optimizer.for_each_state([&](const auto& tensor) { all[tensor.name] = to_host(problem.dev, tensor.own); });
      return all;
    }
  };
  struct Change {
    std::string_view from, to;
  };
  const Change changes[] = {{"abc", "bc"}, {"bc", "abc"}, {"ac", "b"}, {"ab", "bc"}, {"c", "ab"}};
  for (const Change& change : changes) {
    const std::string_view from = change.from, to = change.to;
    CAPTURE(from);
    CAPTURE(to);
    Run whole;
    const auto begin = [&](Run& run) {
      run.steps(1, 2);
      run.problem.params.train(run.problem.dev, only(from));
      run.optimizer.follow(run.problem.dev);
      run.steps(2, 4);
      run.problem.params.train(run.problem.dev, only(to));
    };
    begin(whole);
    whole.optimizer.follow(whole.problem.dev);
    whole.steps(4, 6);
    std::size_t failed = 0;
    for (bool fails = true; fails; ++failed) {
      CAPTURE(failed);
      // How often it fails as it goes back, where it does.
      for (const int again : {-1, 0, 1, 2, 4}) {
        const bool goes_back = again >= 0;
        Run broken;
        begin(broken);
        broken.problem.dev.fail_allocations_after(failed);
        try {
          broken.optimizer.follow(broken.problem.dev);
          fails = false;
          break;
        } catch (const DeviceError&) {}
        CHECK_THROWS_WITH_AS(broken.steps(4, 5), doctest::Contains("has not followed what trains"), Error);
        CHECK_THROWS_AS((void)broken.state(), Error);
        CHECK(broken.optimizer.updates() == 3);
        if (!goes_back) {
          broken.optimizer.follow(broken.problem.dev);
          broken.steps(4, 6);
          CHECK(broken.problem.values() == whole.problem.values());
          CHECK(broken.state() == whole.state());
          continue;
        }
        Run kept;
        begin(kept);
        kept.problem.params.train(kept.problem.dev, only(from));
        const auto before = kept.state();
        broken.problem.params.train(broken.problem.dev, only(from));
        for (int failure = again; failure > 0; --failure) {
          broken.problem.dev.fail_allocations_after(static_cast<std::size_t>(failure) - 1);
          try {
            broken.optimizer.follow(broken.problem.dev);
          } catch (const DeviceError&) {}
          broken.problem.dev.fail_allocations_after(0, 0);
        }
        broken.optimizer.follow(broken.problem.dev);
        const auto after = broken.state();
        CHECK(after.size() == before.size());
        for (const auto& [name, numbers] : after) {
          const auto zeros = std::count(numbers.begin(), numbers.end(), 0.0f);
          const bool both = to.find(name[0]) != to.npos;
          const bool anew = !both && zeros == std::ssize(numbers);
          CHECK((anew || numbers == before.at(name)));
          // Of what has lost one moment nothing stays of the other.
          const std::string other = name.ends_with("_sq") ? name.substr(0, name.size() - 3) : name + "_sq";
          if (anew) CHECK(after.at(other) == std::vector<float>(numbers.size()));
        }
        for (const auto& entry : broken.problem.params.entries())
          if (from.find(entry.name[0]) != from.npos) {
            const bool anew = after.at(entry.name + ".exp_avg") != before.at(entry.name + ".exp_avg");
            CHECK(broken.optimizer.since(entry) == (anew ? 3 : kept.optimizer.since(entry)));
          }
      }
    }
    CHECK(failed > 2);
  }
}

TEST_CASE("adamw: what begins to train later counts its own updates, what is frozen stays") {
  // As torch.optim.AdamW does with parameters whose gradient is None.
  Problem<double> problem;
  AdamW<Dev, double> optimizer(problem.dev, problem.params, settings);
  Problem<double> w_alone, b_alone;
  AdamW<Dev, double> of_w(w_alone.dev, w_alone.params, settings), of_b(b_alone.dev, b_alone.params, settings);
  const auto only = [](std::string_view wanted) { return [=](std::string_view name) { return name == wanted; }; };
  problem.params.train(problem.dev, only("w"));
  optimizer.follow(problem.dev);
  const auto before = to_host(problem.dev, problem.b.value());
  for (int s = 0; s < 3; ++s) {
    for (auto* each : {&problem, &w_alone}) each->make_gradients(s);
    optimizer.step(problem.dev, 1e-2, 1);
    of_w.step(w_alone.dev, 1e-2, 1);
  }
  CHECK(to_host(problem.dev, problem.b.value()) == before);
  problem.params.train(problem.dev, [](std::string_view) { return true; });
  optimizer.follow(problem.dev);
  for (int s = 3; s < 6; ++s) {
    for (auto* each : {&problem, &w_alone, &b_alone}) each->make_gradients(s);
    optimizer.step(problem.dev, 1e-2, 1);
    of_w.step(w_alone.dev, 1e-2, 1);
    of_b.step(b_alone.dev, 1e-2, 1);
  }
  CHECK(to_host(problem.dev, problem.w.value()) == to_host(w_alone.dev, w_alone.w.value()));
  CHECK(to_host(problem.dev, problem.b.value()) == to_host(b_alone.dev, b_alone.b.value()));
}

TEST_CASE("adamw: what is not set is PyTorch's") {
  const AdamWSettings plain;
  CHECK((plain.beta1 == 0.9 && plain.beta2 == 0.999 && plain.epsilon == 1e-8));
  CHECK((plain.weight_decay == 0 && plain.lr_ratio == 1));
  CHECK((AdamWGroup{}.learning_rate_factor == 1 && AdamWGroup{}.weight_decay == 0));
  CHECK((AdamWShard{}.rank == 0 && AdamWShard{}.size == 1));
  CHECK(faster_group == 2);
  const StatePlace place;
  CHECK_FALSE(place.on_host);
  CHECK(place.threads == 0);
  CHECK_FALSE(place.memory);
  CHECK_FALSE(place.piece);
}

TEST_CASE("adamw: what the host holds is values and moments of a rank's part, and buffers of a piece each way, twice") {
  using Optimizer = AdamW<proof::Device, float, Dev>;
  using Sizes = std::vector<nn::GroupSize>;
  constexpr Index block = 1024;
  const Sizes sizes{{9 * block, 8 * block}, {5 * block, 2 * block}};
  constexpr std::size_t bytes = block * sizeof(float);
  CHECK(Optimizer::host_bytes(sizes, {}, block) == 3 * 10 * bytes + 4 * bytes);
  CHECK(Optimizer::host_bytes(sizes, {}, 100 * block) == 3 * 10 * bytes + 4 * 8 * bytes);  // no more than there is
  CHECK(Optimizer::host_bytes(sizes, {1, 2}, 100 * block) == 3 * 5 * bytes + 4 * 4 * bytes);
  CHECK(Optimizer::host_bytes(Sizes{}) == 0);
  CHECK(Optimizer::host_bytes(Sizes{{Index{1} << 23, Index{1} << 22}}) ==
        3 * (std::size_t{4} << 22) + 4 * (std::size_t{4} << 20));
  // As it follows: m and v of one group after the other are there twice; then values are read.
  const Sizes grown{{9 * block, 9 * block}, {5 * block, 5 * block}};
  CHECK(Optimizer::moment_bytes_to_follow(sizes, grown) == (2 * 8 + 2 * 2 + 1 + 9) * bytes);
  CHECK(Optimizer::moment_bytes_to_follow(sizes, sizes) == (2 * 10 + 8) * bytes);
  CHECK(Optimizer::moment_bytes_to_follow(sizes, sizes, {0, 2}) == (2 * 5 + 4) * bytes);
  CHECK(Optimizer::host_bytes_to_follow(sizes, grown, {}, block) == 3 * 14 * bytes + 4 * bytes);
  CHECK(Optimizer::host_bytes_to_follow(grown, sizes, {}, 100 * block) == 3 * 14 * bytes + 4 * 9 * bytes);
}

TEST_CASE("adamw: of its state each tensor has its own shape, and ranks their parts") {
  Apart problem;
  AdamW<proof::Device, float> whole(problem.dev, problem.params, settings),
      second(problem.dev, problem.dev, problem.params, settings, {}, {1, 2});
  CHECK_FALSE(whole.is_shared());
  CHECK(whole.rank() == 0);
  CHECK(second.is_shared());
  CHECK(second.rank() == 1);
  CHECK(&whole.params() == &problem.params);
  std::vector<std::string> told;
  // a (3, 1000) has 3 blocks, b (1, 100) one behind it: two blocks a rank. c (5, 700) has 4.
  second.for_each_state([&](const auto& tensor) {
    CHECK(tensor.begins.size() == 3);
    told.push_back(concat(tensor.name, " ", to_string(tensor.shape), ": ", tensor.begins[1], " of ", tensor.begins[2],
                          ", own ", tensor.own.size()));
  });
  CHECK(told == std::vector<std::string>{
                    "a.exp_avg (3, 1000): 2048 of 3000, own 952", "a.exp_avg_sq (3, 1000): 2048 of 3000, own 952",
                    "b.exp_avg (1, 100): 0 of 100, own 100", "b.exp_avg_sq (1, 100): 0 of 100, own 100",
                    "c.exp_avg (5, 700): 2048 of 3500, own 1452", "c.exp_avg_sq (5, 700): 2048 of 3500, own 1452"});
  const auto& entry = problem.params.entries()[1];
  CHECK(whole.since(entry) == 0);
  whole.set_since(entry, 3);
  CHECK(whole.since(entry) == 3);
  CHECK(whole.since(problem.params.entries()[0]) == 0);
  whole.set_updates(7);
  CHECK(whole.updates() == 7);
}

}  // namespace adamw_test
