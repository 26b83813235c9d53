// train.hpp's owner and exceptions. Built as C++17.
#include <weft/train.hpp>

#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "tests/catch.hpp"
#include "tests/folder.hpp"

namespace {

// The errors of body(communicator), by rank.
template <class Body>
std::vector<std::string> on_ranks(int ranks, Body body) {
    std::vector<std::string> wrong(static_cast<size_t>(ranks));
    const weftUniqueId id = weft::make_unique_id();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            try {
                weft::Communicator comm(ranks, id, rank);
                wrong[static_cast<size_t>(rank)] = body(comm, rank);
            } catch (const weft::Error& error) {
                wrong[static_cast<size_t>(rank)] = error.what();
            }
        });
    for (std::thread& thread : threads) thread.join();
    return wrong;
}

}  // namespace

TEST_CASE("the owner is movable, and its calls are train.h's") {
    static_assert(!std::is_copy_constructible<weft::train::Ddp>::value, "one owner");
    const auto wrong = on_ranks(2, [](weft::Communicator& comm, int rank) -> std::string {
        std::vector<float> weight(5, float(rank)), own(3, 0);
        std::vector<double> bias(3, rank);
        std::vector<int> steps(1, 7 + rank);
        std::vector<double> bias_gradient(3);
        weftTrainDdpConfig_t config = weft::train::ddp_config();
        config.findUnused = 1;
        config.join = 1;
        weft::train::Ddp made(comm,
                              {weft::train::tensor("weight", weight.data(), weight.size()),
                               weft::train::tensor("bias", bias.data(), bias.size(), bias_gradient.data()),
                               weft::train::tensor("unused", own.data(), own.size())},
                              {weft::train::tensor("steps", steps.data(), steps.size())}, config);
        weft::train::Ddp ddp(std::move(made));
        if (made.get() || weight[4] != 0 || steps[0] != 7) return "the values of rank 0";
        ddp.begin_accumulation();
        ddp.gradient<float>(0)[4] = float(rank + 1);
        ddp.ready(0);
        ddp.finish();
        ddp.begin();
        ddp.gradient<float>(0)[4] += 10;
        if (ddp.gradient<double>(1) != bias_gradient.data()) return "another gradient";
        bias_gradient[2] = 4 * rank;
        ddp.ready({0, 1});
        ddp.finish();
        if (ddp.gradient<float>(0)[4] != 11.5 || bias_gradient[2] != 2) return "no average";
        if (!ddp.reduced()) return "not reduced";
        if (ddp.parameter_count() != 3 || ddp.bucket_count() < 2) return "counts";
        ddp.zero_gradients();
        if (ddp.gradient<float>(0)[4] != 0 || bias_gradient[2] != 0) return "gradients are not zero";
        if (!ddp.used(1) || ddp.used(2) || ddp.bucket(0) < 0) return "the used-map";
        ddp.join();
        try {
            ddp.finish();
            return "no exception";
        } catch (const weft::Error& error) {
            return error.id() == std::string("train.iteration") ? "" : error.what();
        }
    });
    CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("the owner of a sharded model is movable, and its calls are train.h's") {
    static_assert(!std::is_copy_constructible<weft::train::Shard>::value, "one owner");
    const auto wrong = on_ranks(2, [](weft::Communicator& comm, int rank) -> std::string {
        std::vector<float> weight(8, float(rank + 5)), head(2, 3);
        const std::vector<weftTrainTensor_t> body = {weft::train::tensor("weight", weight.data(), weight.size())};
        const std::vector<weftTrainTensor_t> end = {weft::train::tensor("head", head.data(), head.size())};
        weftTrainShardConfig_t config = weft::train::shard_config();
        config.sharding = weftTrainShardRows;
        weft::train::Shard made(comm, {weft::train::unit("body", body), weft::train::unit("end", end, 1)}, config);
        weft::train::Shard shard(std::move(made));
        for (int unit = 0; unit < 2; ++unit) {
            shard.gather(unit);
            if (shard.parameter<float>(unit)[1] != (unit == 0 ? 5 : 3)) return "the values of rank 0";
            shard.gradient<float>(unit)[1] = float(4 * rank);
            shard.release(unit, weftTrainBackward);
            shard.reduce_scatter(unit);
        }
        shard.finish();
        if (!shard.reduced()) return "not reduced";
        const weftTrainPiece_t piece = shard.piece(0);
        if (piece.begin != size_t(rank) * 4 || piece.count != 4) return "the piece";
        if (rank == 0 && static_cast<float*>(piece.gradient)[1] != 2) return "no average";
        shard.zero_gradients();
        if (shard.piece(0).gradient || shard.stats().gatheredElements != 10) return "the counters";
        try {
            shard.release(1, weftTrainForward);
            return "no exception";
        } catch (const weft::Error& error) {
            return error.id() == std::string("train.unit") ? "" : error.what();
        }
    });
    CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("a compressing hook is an owner, and its state can be kept") {
    static_assert(!std::is_copy_constructible<weft::train::Compressor>::value, "one owner");
    const auto wrong = on_ranks(2, [](weft::Communicator& comm, int rank) -> std::string {
        std::vector<float> weight(4);
        weftTrainCompressorConfig_t settings = weft::train::compressor_config(weftTrainTopK);
        settings.density = 0.5;
        weft::train::Compressor made(settings);
        weft::train::Compressor compressor(std::move(made));
        weftTrainDdpConfig_t config = weft::train::ddp_config();
        compressor.hook_into(config);
        weft::train::Ddp ddp(comm, {weft::train::tensor("weight", weight.data(), weight.size())}, {}, config);
        ddp.begin();
        for (int i = 0; i < 4; ++i) ddp.gradient<float>(0)[i] = float(2 * i + 2 + rank);
        ddp.ready(0);
        ddp.finish();
        if (ddp.gradient<float>(0)[0] != 0 || ddp.gradient<float>(0)[3] != 8.5f) return "the largest numbers";
        const std::vector<unsigned char> state = compressor.save();
        compressor.load(state);
        try {
            compressor.load({1, 2, 3});
            return "no exception";
        } catch (const weft::Error& error) {
            return error.id() == std::string("train.compressor") ? "" : error.what();
        }
    });
    CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("the owner of checkpoints is movable, and its calls are train.h's") {
    static_assert(!std::is_copy_constructible<weft::train::Checkpoint>::value, "one owner");
    const weft::internal::test::Folder folder;
    const auto wrong = on_ranks(2, [&](weft::Communicator& comm, int rank) -> std::string {
        using weft::train::Box;
        const size_t own = size_t(rank);
        const std::string first = folder.path / "1", second = folder.path / "2", file = folder.path / "all.safetensors";
        std::vector<float> rows(6, float(rank));
        std::vector<double> common(2, 0.5);
        const Box<float> part("rows", rows.data(), {4, 3}, {2 * own, 0}, {2, 3});
        const Box<double> whole("common", common.data(), {2});
        weft::train::Checkpoint made(comm);
        weft::train::Checkpoint checkpoint(std::move(made));
        checkpoint.save(first, {part.get(), whole.get()}, {weft::train::item("step", "abc", 3)});
        checkpoint.save_in_background(second, {part.get(), whole.get()},
                                      {weft::train::item("rank", &rank, sizeof rank, true)});
        checkpoint.wait();
        if (made.get() || !checkpoint.test()) return "the end of the save";
        std::vector<float> all(12);
        checkpoint.load(first, {Box<float>("rows", all.data(), {4, 3}).get()});
        if (all[5] != 0 || all[6] != 1 || checkpoint.ranks() != 2) return "other values";
        if (checkpoint.item("step") != std::vector<unsigned char>{'a', 'b', 'c'}) return "another item";
        checkpoint.load(second, {});
        if (checkpoint.item("rank", 1)[0] != 1) return "the item of a rank";
        const std::vector<weft::train::StoredTensor> list = weft::train::list_checkpoint(first);
        if (list.size() != 3 || list[1].name != "step" || list[1].data != std::vector<unsigned char>{'a', 'b', 'c'} ||
            list[1].rank != -1 || list[2].is_item || list[2].bytes != 48)
            return "another list";
        checkpoint.export_file(second, file, "");
        comm.barrier();
        try {
            checkpoint.save(first, {whole.get()});
            return "no exception";
        } catch (const weft::Error& error) {
            return error.id() == std::string("train.checkpoint-exists") ? "" : error.what();
        }
    });
    CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("the owner of copies in memory outlives communicators, and its calls are train.h's") {
    static_assert(!std::is_copy_constructible<weft::train::Replica>::value, "one owner");
    std::vector<weft::train::Replica> replicas;
    for (int process = 0; process < 2; ++process) replicas.emplace_back(1);
    for (int job = 0; job < 2; ++job) {
        const auto wrong = on_ranks(2, [&](weft::Communicator& comm, int rank) -> std::string {
            using weft::train::Box;
            const size_t own = size_t(rank);
            std::vector<float> row(3, float(rank)), other(3);
            if (job == 0) {
                replicas[own].save(comm, 5, {Box<float>("rows", row.data(), {2, 3}, {own, 0}, {1, 3}).get()},
                                   {weft::train::item("rank", &rank, sizeof rank, true)});
                return "";
            }
            const Box<float> wanted("rows", other.data(), {2, 3}, {1 - own, 0}, {1, 3});
            if (replicas[own].load(comm, {wanted.get()}) != 5) return "another version";
            if (other[2] != float(1 - rank)) return "another row";
            return replicas[own].item("rank", true)[0] == rank ? "" : "another item";
        });
        CHECK(wrong == std::vector<std::string>(2));
        if (job == 0) replicas[1] = weft::train::Replica(1, 2);
    }
}

TEST_CASE("an exception says which rank has another model") {
    const auto wrong = on_ranks(2, [](weft::Communicator& comm, int rank) -> std::string {
        std::vector<float> weight(5);
        try {
            weft::train::Ddp(comm, {weft::train::tensor("weight", weight.data(), rank == 1 ? 4 : 5)});
            return "no exception";
        } catch (const weft::Error& error) {
            return error.failed_rank() == 1 && error.code() == weftMismatch ? "" : error.what();
        }
    });
    CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("the owner of Local SGD is movable, and its calls are train.h's") {
    static_assert(!std::is_copy_constructible<weft::train::Local>::value, "one owner");
    const auto wrong = on_ranks(2, [](weft::Communicator& comm, int rank) -> std::string {
        std::vector<float> weight(5, float(rank));
        weftTrainLocalConfig_t config = weft::train::local_config();
        config.period = 2;
        config.method = weftTrainDiloco;
        weft::train::Local made(comm, {weft::train::tensor("weight", weight.data(), weight.size())}, config);
        weft::train::Local local(std::move(made));
        if (made.get() || weight[4] != 0 || local.mode() != weftTrainAccumulate) return "the values of rank 0";
        weight[4] = float(rank);
        if (local.step() || !local.step() || local.steps() != 2) return "the steps";
        // The mean change is -0.5: 0.7 * (0.5 + 0.9 * 0.5).
        if (weight[4] < 0.66f || weight[4] > 0.67f) return "the outer step";
        if (static_cast<float*>(local.state(0).anchor)[4] != weight[4]) return "the anchor";
        local.restore(1);
        weft::check(weftBarrier(comm.get(), nullptr));  // both have restored
        local.abort();
        try {
            local.step();
            return "no exception";
        } catch (const weft::Error& error) {
            return error.id() == std::string("train.aborted") ? "" : error.what();
        }
    });
    CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("an optimizer, a scaler, norms, statistics and samples have owners and exceptions") {
    static_assert(!std::is_copy_constructible<weft::train::Optimizer>::value, "one owner");
    static_assert(!std::is_copy_constructible<weft::train::Scaler>::value, "one owner");
    const auto wrong = on_ranks(2, [](weft::Communicator& comm, int rank) -> std::string {
        std::vector<float> weight(3, 1), gradient(3, float(3 + rank));
        auto part = weft::train::part("weight", weight.data(), gradient.data(), weight.size(), 1);
        weft::train::Scaler made_scaler({&comm});
        weft::train::Scaler scaler(std::move(made_scaler));
        if (made_scaler.get() || scaler.unscale({part}, false) || scaler.scale() != 65536) return "the scale";
        scaler.update();
        if (scaler.good_steps() != 1) return "no good step";
        scaler.restore(8, 3);
        if (weft::train::gradient_norm({part}, {&comm}, 1) != 21) return "the norm";
        weft::train::clip_gradients({part}, 4, 2);
        if (gradient[0] >= float(2 + rank)) return "not clipped";
        auto config = weft::train::optimizer_config(weftTrainSgd);
        config.momentum = 0.5;
        weft::train::Optimizer made({part}, config, {&comm});
        weft::train::Optimizer optimizer(std::move(made));
        gradient.assign(3, 4);
        optimizer.set_gradient(0, gradient.data());
        optimizer.step(0.5);
        optimizer.step(0.5, 1, true);
        if (made.get() || weight[2] != -1 || optimizer.steps(0) != 1) return "no step";
        if (optimizer.state_count() != 1 || optimizer.state(0, 0).first != std::string("momentum_buffer") ||
            optimizer.state(0, 0).second[1] != 4)
            return "no momentum";
        float momentum[3] = {};
        optimizer.read_state(0, 0, momentum);
        if (momentum[2] != 4 || optimizer.state_name(0, 0) != std::string("momentum_buffer")) return "no copy";
        momentum[1] = 7;
        optimizer.write_state(0, 0, momentum);
        if (optimizer.state(0, 0).second[1] != 7) return "not written";
        optimizer.set_steps(0, 0);
        const float x[2] = {float(1 + rank), float(3 + rank)};
        float mean = 0, invstd = 0, sums[2];
        const auto layer = weft::train::batch_norm(2, 1);
        if (weft::train::batch_norm_forward(layer, x, &mean, &invstd, comm) != 4 || mean != 2.5f) return "the mean";
        weft::train::batch_norm_backward(layer, x, x, &mean, nullptr, sums, comm);
        if (sums[0] != 10) return "the sums";
        if (weft::train::samples_of_rank(3, 2, rank, false, {5, 6, 7}).back() != (rank ? 5u : 7u)) return "the samples";
        if (weft::train::shuffled(50, 1) == weft::train::shuffled(50, 2)) return "the order";
        try {
            optimizer.step(-1);
            return "no exception";
        } catch (const weft::Error& error) {
            return error.id() == std::string("argument.value") ? "" : error.what();
        }
    });
    CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("the owner of a parameter server is movable, and its calls are train.h's") {
    static_assert(!std::is_copy_constructible<weft::train::ParameterServer>::value, "one owner");
    const auto wrong = on_ranks(2, [](weft::Communicator& comm, int rank) -> std::string {
        std::vector<float> weight(5, float(rank)), gradient(5, 2);
        weftTrainServerConfig_t config = weft::train::server_config();
        config.learningRate = 0.5;
        weft::train::ParameterServer made(
            comm, {weft::train::tensor("weight", weight.data(), weight.size(), gradient.data())}, config);
        weft::train::ParameterServer server(std::move(made));
        if (made.get() || weight[4] != 0 || server.owner(0) != 0) return "the values of rank 0";
        if (rank == 0) {
            server.serve();
        } else {
            server.push();
            server.pull();
            server.finish();
        }
        if (weight[4] != -1 || server.stats().applied != 1) return "the step";
        try {
            rank == 0 ? server.push() : server.serve();
            return "no exception";
        } catch (const weft::Error& error) {
            return error.id() == std::string("train.server-order") ? "" : error.what();
        }
    });
    CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("the owner of straggler scores is movable, and its calls are train.h's") {
    static_assert(!std::is_copy_constructible<weft::train::Stragglers>::value, "one owner");
    const auto wrong = on_ranks(2, [](weft::Communicator& comm, int rank) -> std::string {
        auto config = weft::train::stragglers_config();
        config.intervalSteps = 2;
        config.threshold = 0;
        weft::train::Stragglers made(comm, config);
        weft::train::Stragglers stragglers(std::move(made));
        if (made.get() || stragglers.step(1 + rank) || !stragglers.step(1 + rank)) return "the reports";
        if (stragglers.scores() != std::vector<double>{1, 0.5}) return "the scores";
        stragglers.report();
        try {
            stragglers.step(-1);
            return "no exception";
        } catch (const weft::Error& error) {
            return error.id() == std::string("argument.value") ? "" : error.what();
        }
    });
    CHECK(wrong == std::vector<std::string>(2));
}
