// Sharded models of ranks that are threads, against values and averages that every rank can compute. Random plans.
#include "src/train/sharding/sharded.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "src/base/datatype.hpp"
#include "tests/amount.hpp"
#include "tests/comm/on_threads.hpp"
#include "tests/train/trained_rank.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::train;

namespace {

// A parameter's element after some steps: a whole number that every type holds.
double value_element(int step, int parameter, size_t i) {
    return double((size_t(step) * 31 + size_t(parameter) * 7 + i * 3) % 251) - 125;
}

std::vector<TensorFacts> facts_of(const ShardingPlan& plan) {
    std::vector<TensorFacts> facts;
    for (const UnitPlan& unit : plan.units)
        for (const UnitParameter& parameter : unit.parameters) facts.push_back(parameter.facts);
    return facts;
}

// One rank of a model. Thread-bound.
class ShardedRank {
  public:
    ShardedRank(ShardingPlan plan, weftComm_t comm) : plan_(std::move(plan)), facts_(facts_of(plan_)) {
        (void)weftCommUserRank(comm, &rank_);
        (void)weftCommCount(comm, &ranks_);
        for (size_t p = 0; p < facts_.size(); ++p) {
            values_.emplace_back(facts_[p].count * size_of(facts_[p].type));
            for (size_t i = 0; i < facts_[p].count; ++i)
                set_number(values_[p].data(), facts_[p].type, i, value_element(0, int(p), i));
        }
        size_t number = 0;
        for (UnitPlan& unit : plan_.units)
            for (UnitParameter& parameter : unit.parameters)
                parameter.data = rank_ == 0 ? values_[number++].data() : nullptr;
        auto made = Sharded::make(ok(), plan_, host_space(), comm);
        if (made)
            sharded = std::move(*made);
        else
            complain(made.status().text());
        if (weftBarrier(comm, nullptr) != weftSuccess) complain("the barrier failed");
    }

    int units() const { return int(plan_.units.size()); }
    int rank() const { return rank_; }
    int ranks() const { return ranks_; }
    const std::string& wrong() const { return wrong_; }
    void complain(const std::string& text) {
        if (wrong_.empty()) wrong_ = "rank " + std::to_string(rank_) + ": " + text;
    }
    void check(Status status) {
        if (!status) complain(status.text());
    }

    // The whole unit has the values of a step.
    void expect_values(int unit, int step) {
        each_parameter(unit, [&](int p) {
            auto whole = sharded->parameter(p);
            if (!whole) return complain(whole.status().text());
            for (size_t i = 0; i < facts_[size_t(p)].count; ++i)
                if (const double seen = number_at(*whole, whole_type(p), i); seen != value_element(step, p, i))
                    return complain("element " + std::to_string(i) + " of parameter " + std::to_string(p) + " is " +
                                    std::to_string(seen));
        });
    }
    void forward(int step) {
        for (int unit = 0; unit < units(); ++unit) {
            check(sharded->gather(unit, nullptr));
            expect_values(unit, step);
            check(sharded->release(unit, true, nullptr));
        }
    }
    void backward(int step, int batch, bool synchronizes = true) {
        for (int unit = units() - 1; unit >= 0; --unit) {
            check(sharded->gather(unit, nullptr));
            expect_values(unit, step);
            each_parameter(unit, [&](int p) {
                auto gradient = sharded->gradient(p);
                if (!gradient) return complain(gradient.status().text());
                for (size_t i = 0; i < facts_[size_t(p)].count; ++i)
                    set_number(*gradient, whole_type(p), i,
                               number_at(*gradient, whole_type(p), i) + gradient_element(rank_, batch, p, i));
            });
            check(sharded->release(unit, false, nullptr));
            check(sharded->reduce_scatter(unit, synchronizes, nullptr));
        }
    }
    // Each gradient shard is the average of the sums of some batches.
    void expect_gradients(int first_batch, int batches) {
        const double digits[] = {0, 0, 0, 0, 0, 0, 0x1p-11, 0x1p-24, 0x1p-53, 0x1p-8};
        for (int p = 0; p < int(facts_.size()); ++p) {
            const ParameterShard shard = sharded->shard(p);
            if (shard.count > 0 && !shard.gradient)
                return complain("parameter " + std::to_string(p) + " has no gradient");
            for (size_t i = 0; i < shard.count; ++i) {
                double expected = 0;
                for (int rank = 0; rank < ranks_; ++rank)
                    for (int batch = first_batch; batch < first_batch + batches; ++batch)
                        expected += gradient_element(rank, batch, p, shard.begin + i);
                expected /= plan_.divisor > 0 ? plan_.divisor : ranks_;
                const weftDataType_t type =
                    plan_.types.output == weftNumTypes ? facts_[size_t(p)].type : plan_.types.output;
                const double seen = number_at(shard.gradient, type, i);
                // Each contribution of at most 8 may be rounded, and so may their sums.
                if (std::fabs(seen - expected) >
                    8 * (ranks_ + 4) * batches * std::max(digits[reduced_type(p)], digits[type]))
                    return complain("element " + std::to_string(i) + " of the gradient of parameter " +
                                    std::to_string(p) + " is " + std::to_string(seen) + ", not " +
                                    std::to_string(expected));
            }
        }
    }
    // Writes the values of a step to the shards.
    void update(int step) {
        for (int p = 0; p < int(facts_.size()); ++p) {
            const ParameterShard shard = sharded->shard(p);
            for (size_t i = 0; i < shard.count; ++i)
                set_number(shard.values, facts_[size_t(p)].type, i, value_element(step, p, shard.begin + i));
        }
        check(sharded->zero_gradients());
    }

    std::shared_ptr<Sharded> sharded;

  private:
    weftDataType_t whole_type(int p) const {
        return plan_.types.parameter == weftNumTypes ? facts_[size_t(p)].type : plan_.types.parameter;
    }
    weftDataType_t reduced_type(int p) const {
        return plan_.types.reduction == weftNumTypes ? whole_type(p) : plan_.types.reduction;
    }
    template <class Body>
    void each_parameter(int unit, Body&& body) {
        int first = 0;
        for (int u = 0; u < unit; ++u) first += int(plan_.units[size_t(u)].parameters.size());
        for (int p = 0; p < int(plan_.units[size_t(unit)].parameters.size()); ++p) body(first + p);
    }

    ShardingPlan plan_;
    std::vector<TensorFacts> facts_;
    std::vector<std::vector<std::byte>> values_;
    int rank_ = 0, ranks_ = 1;
    std::string wrong_;
};

template <class Body>
void on_sharded(int ranks, const ShardingPlan& plan, Body&& body) {
    CAPTURE(ranks);
    for (const std::string& wrong : on_threads(ranks, nullptr, [&](weftComm_t comm, int) {
             ShardedRank rank(plan, comm);
             if (rank.wrong().empty()) body(rank);
             return rank.wrong();
         }))
        CHECK(wrong == "");
}

UnitPlan unit_of(const std::string& name, std::vector<TensorFacts> facts, int reshard_ranks = 0) {
    UnitPlan unit{name, {}, reshard_ranks};
    for (size_t p = 0; p < facts.size(); ++p)
        unit.parameters.push_back({name + " " + std::to_string(p), nullptr, facts[p]});
    return unit;
}

ShardingPlan three_units() {
    ShardingPlan plan;
    plan.units = {unit_of("first", {{weftFloat32, 30, 10}, {weftFloat32, 7}}),
                  unit_of("second", {{weftFloat16, 33}, {weftFloat32, 0}, {weftBfloat16, 12, 3}, {weftFloat64, 5}}),
                  unit_of("third", {{weftFloat32, 101}}, 1)};
    return plan;
}

// A plan and a number of ranks that all ranks draw alike.
struct ShardedScenario {
    explicit ShardedScenario(uint32_t seed) {
        std::mt19937 random(seed);
        const weftDataType_t types[] = {weftFloat16, weftBfloat16, weftFloat32, weftFloat64};
        ranks = 1 + int(random() % 4);
        std::vector<int> divisors;
        for (int size = 1; size <= ranks; ++size)
            if (ranks % size == 0) divisors.push_back(size);
        plan.shard_ranks = divisors[random() % divisors.size()];
        plan.sharding = random() % 2 ? Sharding::flat : Sharding::rows;
        plan.keeps_wholes = random() % 3 == 0;
        plan.keeps_gradients = plan.keeps_wholes && random() % 2;
        plan.divisor = random() % 4 ? 0 : 1 + double(random() % 4);
        const weftDataType_t one = types[random() % 4];
        const bool mixed = random() % 2;
        for (int u = 0, units = 1 + int(random() % 5); u < units; ++u) {
            std::vector<TensorFacts> facts(1 + random() % 4);
            for (TensorFacts& each : facts) {
                const size_t rows = random() % 4 ? random() % 30 : random() % 2, columns = 1 + random() % 5;
                each = {mixed ? types[random() % 4] : one, rows * columns, random() % 2 ? rows : 0};
            }
            const int size = random() % 2 ? 0 : 1 + int(random() % 4);
            plan.units.push_back(
                unit_of("unit " + std::to_string(u), facts, size && plan.shard_ranks % size == 0 ? size : 0));
        }
        batches = 1 + int(random() % 3);
        partial = random() % 2;
    }

    ShardingPlan plan;
    int ranks = 1, batches = 1;
    bool partial = false;  // batches but the last are not reduced over replicas
};

}  // namespace

TEST_CASE("each rank has its shard of rank 0's values, and gathers the whole units") {
    for (int ranks = 1; ranks <= 4; ++ranks)
        for (const Sharding sharding : {Sharding::flat, Sharding::rows}) {
            ShardingPlan plan = three_units();
            plan.sharding = sharding;
            on_sharded(ranks, plan, [](ShardedRank& rank) {
                for (int step = 0; step < 3; ++step) {
                    rank.forward(step);
                    rank.backward(step, step);
                    rank.check(rank.sharded->finish(nullptr));
                    rank.expect_gradients(step, 1);
                    rank.update(step + 1);
                }
            });
        }
}

// Three steps have the gradients and values that the scenario says.
static void trains(const ShardedScenario& scenario) {
    on_sharded(scenario.ranks, scenario.plan, [&](ShardedRank& rank) {
        for (int step = 0; step < 3; ++step) {
            for (int batch = 0; batch < scenario.batches; ++batch) {
                rank.forward(step);
                rank.backward(step, step * 10 + batch, !scenario.partial || batch == scenario.batches - 1);
            }
            rank.check(rank.sharded->finish(nullptr));
            rank.expect_gradients(step * 10, scenario.batches);
            rank.update(step + 1);
        }
    });
}

TEST_CASE("random models are trained as values and sums say, sharded in every way") {
    const uint32_t first = seed();
    for (uint32_t i = 0; i < (small() ? 30u : 120u); ++i) {
        const ShardedScenario scenario(first + i);
        CAPTURE(first + i, scenario.plan.shard_ranks, scenario.batches, scenario.partial);
        trains(scenario);
    }
}

TEST_CASE("float32 models are trained in mixed precision, sharded in every way") {
    const MixedTypes forms[] = {{weftBfloat16, weftFloat32, weftNumTypes},  {weftBfloat16, weftNumTypes, weftNumTypes},
                                {weftFloat16, weftFloat32, weftNumTypes},   {weftFloat16, weftNumTypes, weftFloat16},
                                {weftNumTypes, weftBfloat16, weftNumTypes}, {weftNumTypes, weftNumTypes, weftFloat16}};
    const uint32_t first = seed();
    for (uint32_t i = 0; i < (small() ? 18u : 60u); ++i) {
        ShardedScenario scenario(first + i);
        scenario.plan.types = forms[i % std::size(forms)];
        for (UnitPlan& unit : scenario.plan.units)
            for (UnitParameter& parameter : unit.parameters) parameter.facts.type = weftFloat32;
        CAPTURE(first + i, i % std::size(forms), scenario.plan.shard_ranks, scenario.batches, scenario.partial);
        trains(scenario);
    }
}

TEST_CASE("values that bfloat16 cannot hold stay in the shards, and sums in float32 are exact") {
    ShardingPlan plan;
    plan.units = {unit_of("unit", {{weftFloat32, 21}})};
    plan.types = {weftBfloat16, weftFloat32, weftNumTypes};
    on_sharded(3, plan, [](ShardedRank& rank) {
        Sharded& sharded = *rank.sharded;
        ParameterShard shard = sharded.shard(0);
        for (size_t i = 0; i < shard.count; ++i) static_cast<float*>(shard.values)[i] = 1 + 0x1p-12f;
        rank.check(sharded.gather(0, nullptr));
        auto whole = sharded.parameter(0), gradient = sharded.gradient(0);
        for (size_t i = 0; i < 21; ++i) {
            if (number_at(*whole, weftBfloat16, i) != 1) rank.complain("the whole unit is not rounded");
            // bfloat16 cannot hold the sum, 258.
            set_number(*gradient, weftBfloat16, i, rank.rank() == 1 ? 256 : 1);
        }
        rank.check(sharded.release(0, false, nullptr));
        rank.check(sharded.reduce_scatter(0, true, nullptr));
        rank.check(sharded.finish(nullptr));
        shard = sharded.shard(0);
        for (size_t i = 0; i < shard.count; ++i) {
            if (static_cast<float*>(shard.values)[i] != 1 + 0x1p-12f) rank.complain("a value was rounded");
            if (static_cast<float*>(shard.gradient)[i] != 86) rank.complain("a sum was rounded");
        }
    });
}

TEST_CASE("gradients of several iterations are added until they are zeroed") {
    ShardingPlan plan = three_units();
    for (const int shard_ranks : {4, 2, 1}) {
        plan.shard_ranks = shard_ranks;
        on_sharded(4, plan, [](ShardedRank& rank) {
            for (int batch = 0; batch < 3; ++batch) {
                rank.forward(0);
                rank.backward(0, batch);
                rank.check(rank.sharded->finish(nullptr));
                rank.expect_gradients(0, batch + 1);
            }
        });
    }
}

TEST_CASE("a step moves 2 P elements in ZeRO 1 and 2, and 3 P in ZeRO 3") {
    ShardingPlan plan;
    for (int u = 0; u < 4; ++u) plan.units.push_back(unit_of("block " + std::to_string(u), {{weftFloat32, 250}}));
    constexpr uint64_t parameters = 1000;
    for (int stage = 1; stage <= 3; ++stage) {
        plan.keeps_wholes = stage < 3;
        plan.keeps_gradients = stage < 2;
        CAPTURE(stage);
        on_sharded(2, plan, [&](ShardedRank& rank) {
            for (int step = 0; step < 2; ++step) {
                rank.forward(step);
                rank.backward(step, step);
                rank.check(rank.sharded->finish(nullptr));
                rank.update(step + 1);
                const ShardingCounters counters = rank.sharded->counters();
                const uint64_t moved = counters.gathered_elements + counters.reduced_elements;
                if (moved != (stage < 3 ? 2 : 3) * parameters * uint64_t(step + 1))
                    rank.complain(std::to_string(moved) + " elements were moved");
            }
        });
    }
}

TEST_CASE("units and gradients that stay take memory of their own size") {
    ShardingPlan plan;
    plan.units.push_back(unit_of("embedding", {{weftFloat32, 8000}}, 1));
    for (int u = 0; u < 6; ++u) plan.units.push_back(unit_of("block " + std::to_string(u), {{weftFloat32, 80}}, 1));
    constexpr size_t largest = 32000, all = largest + 6 * 320;
    on_sharded(2, plan, [](ShardedRank& rank) {
        Sharded& sharded = *rank.sharded;
        for (int step = 0; step < 2; ++step) {
            for (int unit = 0; unit < rank.units(); ++unit) {
                rank.check(sharded.gather(unit, nullptr));
                if (auto gradient = sharded.gradient(unit); gradient)
                    set_number(*gradient, weftFloat32, 7, unit + rank.rank());
                else
                    rank.complain(gradient.status().text());
                rank.check(sharded.release(unit, true, nullptr));
            }
            for (int unit = 0; unit < rank.units(); ++unit) rank.check(sharded.reduce_scatter(unit, true, nullptr));
            rank.check(sharded.finish(nullptr));
            for (int unit = 0; rank.rank() == 0 && unit < rank.units(); ++unit)
                if (number_at(sharded.shard(unit).gradient, weftFloat32, 7) != unit + 0.5)
                    rank.complain("another gradient");
            rank.check(sharded.zero_gradients());
        }
        // Each unit, two gradients of the pool, those that it had no memory for, and a sum of two gradient shards.
        if (const size_t bytes = sharded.counters().whole_bytes; bytes > all + 2 * largest + all + largest / 2)
            rank.complain(std::to_string(bytes) + " bytes");
    });
}

TEST_CASE("a wrong call of a unit names it and changes nothing") {
    on_sharded(2, three_units(), [](ShardedRank& rank) {
        const auto refuses = [&](const Status& status, const char* what) {
            if (status || status.id() != error::train_unit) rank.complain(std::string("no error: ") + what);
            if (!status && status.text().find("\"second\"") == std::string::npos) rank.complain(status.text());
        };
        Sharded& sharded = *rank.sharded;
        refuses(sharded.parameter(3).status().copy(), "a parameter of a released unit");
        refuses(sharded.gradient(3).status().copy(), "a gradient of a released unit");
        refuses(sharded.release(1, true, nullptr), "a release without a gather");
        rank.check(sharded.gather(1, nullptr));
        refuses(sharded.gather(1, nullptr), "a second gather");
        refuses(sharded.finish(nullptr), "a unit that is still gathered");
        rank.expect_values(1, 0);
        if (auto gradient = sharded.gradient(3); !gradient) rank.complain(gradient.status().text());
        rank.check(sharded.release(1, false, nullptr));
        refuses(sharded.release(1, false, nullptr), "a second release");
        refuses(sharded.finish(nullptr), "a gradient that is not reduced");
        rank.check(sharded.reduce_scatter(1, true, nullptr));
        rank.check(sharded.finish(nullptr));
        rank.forward(0);
        rank.backward(0, 0);
        rank.check(sharded.finish(nullptr));
    });
}

TEST_CASE("ranks with different units get one sentence about the first difference") {
    std::vector<std::string> seen = on_threads(3, nullptr, [&](weftComm_t comm, int rank) {
        ShardingPlan plan = three_units();
        for (UnitPlan& unit : plan.units)
            for (UnitParameter& parameter : unit.parameters) parameter.facts.count = 0;
        if (rank == 2) plan.units[1].name = "another";
        auto made = Sharded::make(ok(), plan, host_space(), comm);
        if (made) return std::string("no error");
        return std::string(made.status().id() == error::train_model ? "" : "another id: ") + made.status().text();
    });
    CHECK(seen[0].find("\"another\"") != std::string::npos);
    CHECK(seen[0].find("rank 2") != std::string::npos);
    CHECK(seen[1] == seen[0]);
    CHECK(seen[2] == seen[0]);
}

TEST_CASE("if a rank ends its model in an iteration, the others get an error") {
    for (const std::string& wrong : on_threads(3, nullptr, [&](weftComm_t comm, int own) {
             ShardedRank rank(three_units(), comm);
             if (!rank.wrong().empty()) return rank.wrong();
             Status status = rank.sharded->gather(0, nullptr);
             if (own == 1) {
                 rank.sharded.reset();
                 return rank.wrong();
             }
             while (status) {
                 status = rank.sharded->release(0, true, nullptr);
                 if (status) status = rank.sharded->gather(0, nullptr);
             }
             return std::string(status.id() == error::abort_remote ? "" : status.text());
         }))
        CHECK(wrong == "");
}
