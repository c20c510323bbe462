#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "lora/nn/param_store.hpp"
#include "lora/tensor/transfer.hpp"
#include "support/backends.hpp"
#include "support/matrix.hpp"
#include "support/message_of.hpp"
#include "support/thread_ranks.hpp"

namespace param_test {

namespace {

using namespace lora;
using namespace lora::test;

/// Stacked a (5, 300) of two names, b (2, 7), and c (1, 1024) of another group.
template <class D, class T>
struct Store {
  D& dev;
  nn::ParamStore<D, T> params{};
  nn::Param<D, T> a = params.add(5, 300), b = params.add(2, 7), c = params.add(1, 1024, 1);

  explicit Store(D& d) : dev(d) {
    params.name(a, "a.first", 0, 2);
    params.name(b, "b", 0, 2, true);
    params.name(a, "a.second", 2, 3);
    params.name(c, "c", 0, 1);
    params.build(dev);
  }
  void fill() {
    std::uint64_t seed = 1;
    for (const auto& p : {a, b, c})
      copy_from_host<D, Accum<T>>(dev, random_values<Accum<T>>(p.value().size(), seed++), p.value());
    dev.synchronize();
    params.refresh(dev);
  }
  std::vector<std::vector<Accum<T>>> values() {
    return {to_host(dev, a.value()), to_host(dev, b.value()), to_host(dev, c.value())};
  }
};

template <class T>
std::size_t zeros(const std::vector<T>& values) {
  return static_cast<std::size_t>(std::count(values.begin(), values.end(), T(0)));
}

/// What each rank has of a group, as begin-end@place.
std::string shares(const nn::GroupSize& group, int ranks) {
  std::string text;
  for (int rank = 0; rank < ranks; ++rank)
    for (const nn::Share& share : nn::shares_of(group, rank, ranks))
      text += concat(share.begin, "-", share.end, "@", share.at, " ");
  return text;
}

}  // namespace

TEST_CASE("param store: a slab for each group, in whole blocks, zero before anything is put there") {
  each_backend_and_type([]<class D, class T>() {
    D dev(1);
    Store<D, T> store(dev);
    CHECK(store.params.groups() == 2);
    const auto first = store.params.slab(0), second = store.params.slab(1);
    CHECK(first.value.cols() == 2 * 1024 + 1024);
    CHECK(first.grad.cols() == first.value.cols());
    CHECK(second.value.cols() == 1024);
    CHECK(store.a.value().data() == first.value.data());
    CHECK(store.b.value().data() == first.value.data() + 2048);
    CHECK(store.b.grad().data() == first.grad.data() + 2048);
    for (const auto& part : {first.value, first.grad, second.value, second.grad})
      CHECK(zeros(to_host(dev, part)) == static_cast<std::size_t>(part.size()));
    std::vector<std::string> names;
    store.params.for_each([&](const nn::ParamRef<D, T>& param) {
      names.push_back(param.name);
      CHECK(param.transposed == (param.name == "b"));
      if (param.name == "a.second") {
        CHECK(param.value.data() == store.a.value().row(2));
        CHECK(param.grad.rows() == 3);
      }
    });
    CHECK(names == std::vector<std::string>{"a.first", "b", "a.second", "c"});
  });
}

TEST_CASE("param store: copies follow the values, gradients are cleared, padding stays zero") {
  each_backend_and_type([]<class D, class T>() {
    D dev(1);
    Store<D, T> store(dev);
    store.fill();
    for (const auto& p : {store.a, store.b, store.c}) {
      const auto values = to_host(dev, p.value());
      std::vector<T> expected;
      for (const auto& value : values) expected.push_back(rounded<T>(real(value)));
      check_same_bits(to_host(dev, p.use()), expected);
      kernel::fill(dev, p.grad(), 3.0);
    }
    const auto slab = store.params.slab(0);
    CHECK(zeros(to_host(dev, slab.grad)) == 3 * 1024 - 1500 - 14);
    CHECK(zeros(to_host(dev, slab.value)) >= 3 * 1024 - 1500 - 14);
    store.params.zero_grad(dev);
    CHECK(zeros(to_host(dev, slab.grad)) == 3 * 1024);
  });
}

TEST_CASE("param store: a parameter that has no memory yet is not read") {
  each_backend_and_type([]<class D, class T>() {
    D dev(1);
    nn::ParamStore<D, T> params;
    const nn::Param<D, T> param = params.add(2, 3);
    params.name(param, "a", 0, 2);
    CHECK(message_of<DeviceError>([&] { (void)param.use(); }) ==
          "[param] a matrix (2, 3) is read while it is not on the device; expected its store to be built before, "
          "and its layer to be held where ranks share it out or it lies on the host");
    params.build(dev);
    CHECK(param.use().size() == 6);
  });
}

TEST_CASE(
    "param store: of values that are shared out, or on the host, a rank has its shares, and reads a layer while it is "
    "held") {
  const auto check = []<class D, class T>(int ranks, bool on_host) {
    CAPTURE(ranks);
    CAPTURE(on_host);
    std::vector<Index> held(static_cast<std::size_t>(ranks));
    run_ranks<D>(ranks, [&](auto& self) {
      D dev(1);
      nn::ParamStore<D, T> params;
      if (ranks > 1) params.share_values(self);
      if (on_host)
        params.keep_values_on_host([](const Accum<T>* from, T* to, Index count) {
          for (Index i = 0; i < count; ++i) to[i] = rounded<T>(real(from[i]));
        });
      std::vector<nn::Param<D, T>> all;
      std::vector<std::vector<Accum<T>>> given;
      const auto add = [&](Index layer, const std::string& name, Index rows, Index cols, Index group) {
        params.begin_layer(layer);
        all.push_back(params.add(rows, cols, group, group == 1));
        params.name(all.back(), name, 0, rows);
        given.push_back(random_values<Accum<T>>(rows * cols, all.size()));
      };
      add(nn::before_layers, "embedding", 5, 700, 0);
      for (Index layer = 0; layer < 3; ++layer) {
        add(layer, concat(layer, " a"), 3, 500, 0);
        add(layer, concat(layer, " b"), 7, 300 + 100 * layer, 0);
        add(layer, concat(layer, " norm"), 1, 300, 1);
      }
      add(nn::behind_layers, "norm", 1, 300, 1);
      add(nn::behind_layers, "head", 5, 900, 0);
      params.build(dev);
      for (std::size_t i = 0; i < all.size(); ++i)
        params.fill(dev, all[i], [&](D& to_dev, View<D, Accum<T>> to) {
          copy_from_host<D, Accum<T>>(to_dev, given[i], to);
          to_dev.synchronize();
        });
      params.refresh(dev);
      const auto expect = [&](Index layer) {
        for (std::size_t i = 0; i < all.size(); ++i) {
          CAPTURE(i);
          const bool in_full = params.table().storages()[i].in_full;
          const auto read = [&] {
            return in_full ? real(to_host(dev, all[i].use_in_full())[7]) : real(to_host(dev, all[i].use())[7]);
          };
          if (params.table().storages()[i].layer != layer) {
            CHECK(message_of<DeviceError>([&] { (void)read(); }).starts_with("[param] a matrix ("));
            continue;
          }
          std::vector<T> rounds;
          for (const auto& value : given[i]) rounds.push_back(rounded<T>(real(value)));
          if (in_full)
            check_same_bits(to_host(dev, all[i].use_in_full()), given[i]);
          else
            check_same_bits(to_host(dev, all[i].use()), rounds);
        }
      };
      const auto look = [&] {
        CHECK(params.values_on_host() == on_host);
        CHECK((params.host_bytes() > 0) == on_host);
        for (std::size_t i = 0; i < all.size(); ++i) {
          const Arena::Scope scope(dev.arena());
          check_same_bits(to_host(dev, params.whole(dev, all[i])), given[i]);
          params.own_values(dev, params.entries()[i], [&](Index begin, View<D, Accum<T>> own) {
            const auto values = to_host(dev, own);
            check_same_bits(values, {given[i].begin() + begin, given[i].begin() + begin + own.size()});
          });
        }
        for (const Index layer :
             {Index{nn::before_layers}, Index{0}, Index{1}, Index{2}, Index{nn::behind_layers}, Index{2}, Index{0}}) {
          params.acquire(dev, layer, layer == 0 ? 1 : -1);
          expect(layer);
          params.release(dev, layer);
        }
        expect(99);
      };
      look();
      const std::size_t whole = params.value_bytes();
      for (const std::string_view letters : {"0", "nh", "be", "a"}) {  // what trains has one of these in its name
        params.train(dev, [=](std::string_view name) { return name.find_first_of(letters) != name.npos; });
        look();
        CHECK(params.value_bytes() <= whole + 2048 * sizeof(Accum<T>) * 3);
      }
      for (const nn::GroupSize& size : params.sizes())
        held[static_cast<std::size_t>(self.rank())] += nn::values_held(size, self.rank(), ranks);
      Index sum = 0;
      for (const nn::GroupSize& size : params.sizes()) sum += size.all;
      const double own[] = {static_cast<double>(held[static_cast<std::size_t>(self.rank())])};
      double together = 0;
      for (const double one : self.all_gather(std::span<const double>(own))) together += one;
      CHECK(together == static_cast<double>(sum));
    });
  };
  SUBCASE("cpu, f32") { check.template operator()<cpu::Device, float>(3, false); }
  SUBCASE("cpu, bf16") { check.template operator()<cpu::Device, bf16>(3, false); }
  SUBCASE("proof, bf16") { check.template operator()<proof::Device, bf16>(3, false); }
  SUBCASE("proof on the host, f32") {
    for (const int ranks : {1, 3}) check.template operator()<proof::Device, float>(ranks, true);
  }
  SUBCASE("proof on the host, bf16") {
    for (const int ranks : {1, 3}) check.template operator()<proof::Device, bf16>(ranks, true);
  }
}

TEST_CASE("param store: what is frozen has no gradient and keeps its value") {
  each_backend_and_type([]<class D, class T>() {
    D dev(1);
    Store<D, T> store(dev);
    store.fill();
    const auto before = store.values();
    const auto train = [&](std::string_view letters) {
      const auto chosen = [=](std::string_view name) { return letters.find(name[0]) != letters.npos; };
      const auto forecast = letters == "x" ? store.params.sizes() : store.params.table().sizes(chosen);
      store.params.train(dev, chosen);
      const auto sizes = store.params.sizes();
      for (std::size_t g = 0; g < sizes.size(); ++g) {
        CHECK(sizes[g].all == forecast[g].all);
        CHECK(sizes[g].trained == forecast[g].trained);
      }
    };
    for (const std::string_view letters : {"b", "ac", "a", "abc", "c"}) {
      CAPTURE(letters);
      train(letters);
      CHECK(store.values() == before);
      Index trained = 0;
      for (const auto& [p, letter] : {std::pair{&store.a, 'a'}, std::pair{&store.b, 'b'}, std::pair{&store.c, 'c'}}) {
        const bool trains = letters.find(letter) != letters.npos;
        CHECK(p->trains() == trains);
        CHECK(p->grad().empty() == !trains);
        if (trains) CHECK(zeros(to_host(dev, p->grad())) == static_cast<std::size_t>(p->value().size()));
        if (trains) trained += (p->value().size() + 1023) / 1024 * 1024;
        std::vector<T> copy;
        for (const auto& value : to_host(dev, p->value())) copy.push_back(rounded<T>(real(value)));
        check_same_bits(to_host(dev, p->use()), copy);
      }
      CHECK(store.params.slab(0).value.size() + store.params.slab(1).value.size() == trained);
      const auto sizes = store.params.sizes();
      CHECK(sizes[0].all == 3 * 1024);
      CHECK(sizes[1].all == 1024);
      for (const Index group : {0, 1})
        CHECK(sizes[static_cast<std::size_t>(group)].trained == store.params.slab(group).value.size());
    }
    // What trains already stays where it is.
    const auto* const value = store.c.value().data();
    const auto* const grad = store.c.grad().data();
    const std::uint64_t changes = store.params.changes();
    kernel::fill(dev, store.c.grad(), 3.0);
    train("c");
    CHECK(store.c.value().data() == value);
    CHECK(store.c.grad().data() == grad);
    CHECK(store.params.changes() == changes);
    CHECK(zeros(to_host(dev, store.c.grad())) == 1024);
    CHECK_THROWS_WITH_AS(store.params.train(dev, [](std::string_view name) { return name == "a.second"; }),
                         "a.second can't be trained apart from its neighbors, with which it shares a matrix",
                         ConfigError);
    CHECK_THROWS_WITH_AS(train("x"), "none of the model's 4 trainable tensors is left to train", ConfigError);
    CHECK(store.c.trains());  // as before
    CHECK(store.values() == before);
  });
}

TEST_CASE("param store: where memory is short as what trains changes, all is as before, or may be tried again") {
  using D = proof::Device;
  D dev(1);
  Store<D, bf16> store(dev);
  store.fill();
  const auto before = store.values();
  const auto only = [](std::string_view letters) {
    return [=](std::string_view name) { return letters.find(name[0]) != letters.npos; };
  };
  const auto check = [&](std::string_view letters) {
    CHECK(store.values() == before);
    std::vector<float> in_table;
    store.params.for_each([&](const auto& param) {
      for (const float value : to_host(dev, param.value)) in_table.push_back(value);
    });
    CHECK(in_table.size() == 1500 + 14 + 1024);
    for (const auto& [p, letter] : {std::pair{&store.a, 'a'}, std::pair{&store.b, 'b'}, std::pair{&store.c, 'c'}}) {
      CHECK(p->trains() == (letters.find(letter) != letters.npos));
      CHECK(p->grad().empty() != p->trains());
      if (p->trains()) CHECK(zeros(to_host(dev, p->grad())) == static_cast<std::size_t>(p->value().size()));
      std::vector<bf16> copy;
      for (const auto& value : to_host(dev, p->value())) copy.push_back(rounded<bf16>(real(value)));
      check_same_bits(to_host(dev, p->use()), copy);
    }
  };
  struct Change {
    std::string_view from, to;
  };
  const Change changes[] = {{"abc", "b"}, {"b", "abc"}, {"abc", "c"}, {"c", "b"}, {"b", "ac"}, {"ac", "abc"}};
  for (const Change& change : changes) {
    const std::string_view from = change.from, to = change.to;
    CAPTURE(from);
    CAPTURE(to);
    std::size_t failed = 0;
    for (bool fails = true; fails; ++failed) {
      CAPTURE(failed);
      store.params.train(dev, only(from));
      dev.fail_allocations_after(failed);
      try {
        store.params.train(dev, only(to));
        fails = false;
      } catch (const DeviceError&) {
        check(from);
      }
      dev.fail_allocations_after(0, 0);
    }
    CHECK(failed > 2);
    check(to);
    // Not even what there was can be had again: then nothing but the values is there, and what is asked for next.
    for (std::size_t first = 0; first + 1 < failed; ++first) {
      store.params.train(dev, only(from));
      dev.fail_allocations_after(first, 100);
      CHECK_THROWS_AS(store.params.train(dev, only(to)), DeviceError);
      dev.fail_allocations_after(0, 0);
      CHECK(store.values() == before);
      for (const auto* p : {&store.a, &store.b, &store.c}) CHECK(p->grad().empty());
      store.params.train(dev, only(first % 2 == 0 ? from : to));
      check(first % 2 == 0 ? from : to);
    }
    store.params.train(dev, only(to));
  }
}

TEST_CASE("param store: places, parts of ranks and counts of changes") {
  using D = cpu::Device;
  D dev(1);
  Store<D, bf16> store(dev);
  CHECK(store.params.changes() == 1);  // as it was built
  store.fill();
  CHECK(store.params.changes() == 2);
  kernel::fill(dev, store.b.value(), 3.0);
  CHECK(real(to_host(dev, store.b.use())[0]) != 3);
  store.params.refresh_copies(dev);
  CHECK(store.params.changes() == 2);
  CHECK(real(to_host(dev, store.b.use())[0]) == 3);
  store.params.train(dev, [](std::string_view name) { return name == "b"; });
  CHECK(store.params.changes() == 3);
  REQUIRE(store.params.storages() == 3);
  const auto a = store.params.place(0), b = store.params.place(1), c = store.params.place(2);
  CHECK((a.group == 0 && a.begin == 1024 && a.rows == 5 && a.cols == 300 && !a.trains));  // behind what trains
  CHECK((b.group == 0 && b.begin == 0 && b.rows == 2 && b.cols == 7 && b.trains));
  CHECK((c.group == 1 && c.begin == 0 && c.rows == 1 && c.cols == 1024 && !c.trains));
  CHECK(store.params.slab(1).value.empty());
  CHECK(store.params.slab(1).grad.empty());
  CHECK(shares(store.params.size(0), 2) == "0-0@0 0-1024@0 ");
  CHECK(shares(store.params.size(1), 2) == "0-0@0 0-0@0 ");
  store.params.train(dev, [](std::string_view) { return true; });
  CHECK(shares(store.params.size(0), 1) == "0-3072@0 ");
  CHECK(shares(store.params.size(0), 2) == "0-1024@0 1024-3072@0 ");
  CHECK(shares({5 * 1024, 5 * 1024}, 2) == "0-2048@0 2048-5120@0 ");
  store.params.clear();
  CHECK((store.params.groups() == 0 && store.params.storages() == 0 && store.params.entries().empty()));
  CHECK(store.params.sizes().empty());
}

TEST_CASE("param store: ranks that share out layers have a share of each, and form their gradients in turn") {
  using D = cpu::Device;
  D dev(1);
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    nn::ParamStore<D, float> params;
    params.share_by_layer(rank, 3);
    CHECK(params.gives_gradients_away());
    std::vector<nn::Param<D, float>> all;
    const auto add = [&](Index layer, Index cols, Index group, const char* name) {
      params.begin_layer(layer);
      all.push_back(params.add(1, cols, group));
      params.name(all.back(), name, 0, 1);
    };
    add(-1, 1000, 0, "embedding");
    add(0, 4096, 0, "first of 0");
    add(0, 2000, 0, "second of 0");  // two blocks
    add(0, 500, 1, "third of 0");
    add(1, 1024, 0, "of 1");
    add(-1, 3000, 1, "head");  // three blocks
    params.build(dev);
    CHECK(shares(params.size(0), 3) ==
          "0-0@0 1024-3072@0 7168-7168@2048 "
          "0-0@0 3072-5120@0 7168-7168@2048 "
          "0-1024@0 5120-7168@1024 7168-8192@3072 ");
    CHECK(params.slab(0).value.size() == 8192);
    CHECK(params.slab(0).grad.size() == (rank == 2 ? 4096 : 2048));
    // Layers take turns with 7 blocks, and what belongs to none has 1 and 3 of its own.
    const auto* const start = params.forming(0, 1).data();
    CHECK(all[1].grad().data() == start);
    CHECK(all[2].grad().data() == start + 4096);
    CHECK(all[3].grad().data() == start + 6144);
    CHECK(all[4].grad().data() == start);
    CHECK(all[0].grad().data() == start + 7168);
    CHECK(all[5].grad().data() == start + 8192);
    CHECK(params.forming(1, 1).size() == 3072);
    kernel::fill(dev, all[5].grad(), 3.0);
    params.zero_grad(dev);
    CHECK(zeros(to_host(dev, all[5].grad())) == 3000);
    // Of what still trains.
    params.train(dev, [](std::string_view name) { return name == "of 1" || name == "head"; });
    CHECK(shares(params.size(0), 3) == "0-0@0 0-0@0 0-1024@0 ");
    CHECK(shares(params.size(1), 3) == "0-1024@0 1024-2048@0 2048-3072@0 ");
    CHECK(all[4].grad().data() + 1024 == all[5].grad().data());
    CHECK(all[1].grad().empty());
    const nn::Share own = nn::shares_of(params.size(1), rank, 3).front();
    CHECK(params.grad_of(1, own).data() == params.slab(1).grad.data());
  }
}

TEST_CASE("param store: while a layer's gradients are on their way, those of the next are formed beside them") {
  const auto every = [](std::string_view) { return true; };
  for (const int forming : {1, 2}) {
    CAPTURE(forming);
    nn::ParamTable table;
    table.share_by_layer(forming);
    for (const Index layer : {0, 1, 2}) {
      table.name({concat("wide ", layer), table.add({1, 1024 * (layer + 1), 0, layer}), 0, 1});
      table.name({concat("norm ", layer), table.add({1, 1024, 1, layer}), 0, 1});
    }
    table.name({"embedding", table.add({1, 5000, 0, nn::before_layers}), 0, 1});
    const auto sizes = table.sizes(every);
    const nn::FormingPlaces places = nn::forming_places(sizes);
    const Index second = forming == 1 ? 0 : 4096, behind = forming * 4096;
    CHECK(places.begins[0] == std::vector<Index>{0, second, 0, behind});
    CHECK(places.begins[1] == std::vector<Index>{1024, second + 2048, 3072});
    CHECK(places.size == behind + 5120);
    // The last of three ranks gets two of the embedding's five blocks. That of six gets one, but of the last layer one
    // of its norm as well.
    CHECK(nn::most_at_once(sizes, 2, 3) == 2048);
    CHECK(nn::most_at_once(sizes, 5, 6) == forming * 1024);
  }
}

TEST_CASE("param store: one that is built anew has its memory, and all of it trains, from zero on") {
  using D = cpu::Device;
  D dev(1);
  Store<D, float> store(dev);
  store.fill();
  store.params.train(dev, [](std::string_view name) { return name == "c"; });
  const auto late = store.params.add(1, 4, 1);
  CHECK(late.trains());
  store.params.name(late, "late", 0, 1);
  store.params.build(dev);
  for (const auto& p : {store.a, store.b, store.c, late}) {
    CHECK(p.trains());
    CHECK_FALSE(p.empty());
    CHECK(zeros(to_host(dev, p.value())) == static_cast<std::size_t>(p.value().size()));
    CHECK(zeros(to_host(dev, p.grad())) == static_cast<std::size_t>(p.value().size()));
  }
  CHECK(store.params.sizes()[1].all == 2048);
  CHECK(nn::Param<D, float>().empty());
  CHECK_FALSE(nn::Param<D, float>().trains());
}

}  // namespace param_test
