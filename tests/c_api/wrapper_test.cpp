// wrapper_test.cpp: weft.hpp's owners, exceptions and conversions. Built as C++17 and as C++20.
#include <weft/weft.hpp>

#include <cctype>
#include <thread>
#include <vector>

#include "check.h"

using namespace weft;

namespace {

template <class Body>
void check_throws(Body body, weftResult_t code, const char* part) {
    try {
        body();
        CHECK(!"an exception");
    } catch (const Error& error) {
        CHECK(error.code() == code);
        CHECK_TEXT(error.what(), part);
    }
}

void ids_and_versions() {
    CHECK(version() == WEFT_VERSION_CODE);
    const weftUniqueId id = make_unique_id(), other = make_unique_id();
    const std::string text = to_text(id);
    CHECK(text.size() == 256 && text != to_text(other));
    CHECK(to_text(unique_id_from_text(text)) == text);
    std::string upper = text;
    for (char& letter : upper) letter = char(toupper(letter));
    CHECK(to_text(unique_id_from_text(upper)) == text);
    check_throws([&] { unique_id_from_text(text.substr(1)); }, weftInvalidArgument, "256 hexadecimal digits");
    check_throws([&] { unique_id_from_text("g" + text.substr(1)); }, weftInvalidArgument, "256 hexadecimal digits");
    Communicator made(1, unique_id_from_text(text), 0);
    CHECK(made.ranks() == 1);
    CHECK(device_count() >= 0);
    log_info("a line of a library on top of Weft");
    check_throws([&] { made.device(); }, weftInvalidUsage, "[gpu.unavailable]");
}

void types() {
    static_assert(datatype_of<float>() == weftFloat32 && datatype_of<double>() == weftFloat64, "");
    static_assert(datatype_of<std::int8_t>() == weftInt8 && datatype_of<std::uint8_t>() == weftUint8, "");
    static_assert(datatype_of<std::int32_t>() == weftInt32 && datatype_of<std::uint32_t>() == weftUint32, "");
    static_assert(datatype_of<std::int64_t>() == weftInt64 && datatype_of<std::uint64_t>() == weftUint64, "");
    static_assert(datatype_of<long long>() == weftInt64 && datatype_of<unsigned long>() == weftUint64, "");
    static_assert(
        !std::is_copy_constructible<Communicator>::value && std::is_nothrow_move_constructible<Communicator>::value,
        "");
    static_assert(!std::is_copy_constructible<MemBuffer>::value && std::is_nothrow_move_assignable<MemBuffer>::value,
                  "");
}

// A call of each kind, of two threads.
void every_collective() {
    std::vector<Communicator> comms = Communicator::all(2);
    const auto use = [&](int rank) {
        Communicator& comm = comms[std::size_t(rank)];
        const int own[2] = {10 * rank + 1, 10 * rank + 2};
        int got[2] = {};
        comm.broadcast(own, got, 2, 1);
        CHECK(got[0] == 11 && got[1] == 12);
        comm.reduce(own, got, 2, 0);
        if (rank == 0) CHECK(got[0] == 12 && got[1] == 14);
        comm.all_gather(own, got, 1);
        CHECK(got[0] == 1 && got[1] == 11);
        comm.reduce_scatter(own, got, 1, weftMax);
        CHECK(got[0] == 11 + rank);
        comm.all_to_all(own, got, 1);
        CHECK(got[0] == 1 + rank && got[1] == 11 + rank);
        comm.gather(own, got, 1, 1);
        if (rank == 1) CHECK(got[0] == 1 && got[1] == 11);
        comm.scatter(own, got, 1, 0);
        CHECK(got[0] == 1 + rank);
        comm.broadcast(got, 2, 0);
        comm.barrier();
        check_throws([&] { comm.all_to_all(got, got, 1); }, weftInvalidArgument, "disjoint");
    };
    std::thread other(use, 1);
    use(0);
    other.join();
}

void one_thread_many_ranks() {
    std::vector<Communicator> comms = Communicator::all(3);
    std::vector<int> values{1, 20, 300};
    Group group;
    for (std::size_t rank = 0; rank < 3; ++rank) comms[rank].all_reduce(&values[rank], 1);
    group.end();
    CHECK(values == std::vector<int>(3, 321));
    CHECK(comms[2].rank() == 2 && comms[2].ranks() == 3 && comms[2].async_error() == weftSuccess);
    check_throws([] { Communicator::all(0); }, weftInvalidArgument, "ndev is 0");
}

void threads_as_ranks() {
    const weftUniqueId id = make_unique_id();
    double sums[2] = {};
    const auto rank_body = [&](int rank) {
        Communicator comm(2, id, rank);
        const weftRedOp_t op = comm.make_pre_mul_sum(rank == 0 ? 2.0 : 3.0);
        const double value = 10;
        comm.all_reduce(&value, &sums[rank], 1, op);
        comm.destroy_op(op);
        comm.destroy();
    };
    std::thread other(rank_body, 1);
    rank_body(0);
    other.join();
    CHECK(sums[0] == 50 && sums[1] == 50);
}

// The library writes the handle when the group ends: moving the object in between must not matter.
void inits_in_a_group() {
    const weftUniqueId id = make_unique_id();
    std::vector<Communicator> comms;
    Group group;
    for (int rank = 0; rank < 4; ++rank) {
        comms.emplace_back(4, id, rank);  // grows, so those before are moved
        CHECK(!comms.back());
    }
    group.end();
    for (int rank = 0; rank < 4; ++rank) CHECK(comms[std::size_t(rank)].rank() == rank);
}

void all_in_a_group() {
    Group group;
    std::vector<Communicator> comms = Communicator::all(3);
    CHECK(!comms[0]);
    check_throws([] { Communicator::all(0); }, weftInvalidArgument, "ndev is 0");
    group.end();
    for (int rank = 0; rank < 3; ++rank) CHECK(comms[std::size_t(rank)].rank() == rank);
}

// Nothing of a group is carried out that an exception leaves: its ranks can still join, with the same id.
void exceptions_in_groups() {
    const weftUniqueId id = make_unique_id();
    weftConfig_t asynchronous = WEFT_CONFIG_INITIALIZER;
    asynchronous.blocking = 0;
    std::vector<Communicator> all = Communicator::all(2);
    float values[2] = {1, 2};
    check_throws(
        [&] {
            Group group;
            const Communicator first(3, id, 0), second(3, id, 1, &asynchronous);
            const Communicator half = all[0].split(0);
            const std::vector<Communicator> others = Communicator::all(2);
            all[1].all_reduce(values, 1);
            const Communicator wrong(3, id, 3);
        },
        weftInvalidArgument, "rank is 3");
    CHECK(weftGroupEnd() == weftInvalidUsage);  // none is open
    std::vector<Communicator> comms;
    Group group;
    for (int rank = 0; rank < 3; ++rank) comms.emplace_back(3, id, rank);
    for (std::size_t rank = 0; rank < 2; ++rank) all[rank].all_reduce(&values[rank], 1);
    group.end();
    CHECK(comms[2].ranks() == 3 && values[0] == 3 && values[1] == 3);
}

// Their groups hold them, or calls on them: they end when these have.
void owners_that_die_in_groups() {
    const weftUniqueId id = make_unique_id();
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.timeoutMs = 20000;
    std::vector<Communicator> all = Communicator::all(2);
    std::vector<float> values{1, 2};
    Group group;
    Communicator second(2, id, 1, &config);
    try {
        Group inner;
        Communicator first(2, id, 0);
        Communicator dying = std::move(all[0]);
        dying.all_reduce(&values[0], 1);
        all[1].all_reduce(&values[1], 1);
        throw 1;
    } catch (int) {
    }
    group.end();
    CHECK(values == std::vector<float>(2, 3));
    CHECK(second.ranks() == 2);
    check_throws([&] { second.barrier(); }, weftRemoteError, "left");
    check_throws([&] { all[1].barrier(); }, weftRemoteError, "left");
}

void moves() {
    Communicator one = Communicator::from_environment();
    const weftComm_t handle = one.get();
    Communicator other = std::move(one);
    CHECK(other.get() == handle && !one);
    check_throws([&] { one.ranks(); }, weftInvalidArgument, "communicator is NULL");
    CHECK(one.last_error().empty());
    Communicator third(1, make_unique_id(), 0);
    third = std::move(other);
    CHECK(third.get() == handle);
    const weftComm_t released = third.release();
    CHECK(released == handle && !third);
    CHECK_OK(weftCommDestroy(released));
}

void splits_and_shrinks() {
    std::vector<Communicator> all = Communicator::all(3), halves, pairs;
    Group group;
    for (int rank = 0; rank < 3; ++rank) halves.push_back(all[rank].split(rank == 1 ? WEFT_SPLIT_NOCOLOR : 4, -rank));
    group.end();
    CHECK(halves[0].rank() == 1 && halves[2].rank() == 0 && halves[0].ranks() == 2 && !halves[1]);
    Group other;
    for (int rank = 0; rank < 2; ++rank) pairs.push_back(all[rank].shrink({2}));
    other.end();
    CHECK(pairs[1].rank() == 1 && pairs[1].ranks() == 2);
    pairs[0].finalize();
    float value = 1;
    check_throws([&] { pairs[0].all_reduce(&value, 1); }, weftInvalidUsage, "was finalized");
    check_throws([&] { halves[1].split(0); }, weftInvalidArgument, "the communicator is NULL");
}

void errors() {
    Communicator comm = Communicator::from_environment();
    float value = 1;
    check_throws([&] { comm.all_reduce(static_cast<float*>(nullptr), &value, 1); }, weftInvalidArgument,
                 "sendbuff is NULL");
    CHECK_TEXT(comm.last_error().c_str(), "sendbuff is NULL");
    comm.abort();
    check_throws([&] { comm.all_reduce(&value, 1); }, weftInvalidArgument, "destroyed or aborted before");
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.algo = "rign";
    check_throws([&] { Communicator(1, make_unique_id(), 0, &config); }, weftInvalidArgument, "rign");
    check_throws([&] { Communicator::from_environment(&config); }, weftInvalidArgument, "rign");
    CHECK(std::string(Error(weftTimeout, "").what()) == weftGetErrorString(weftTimeout));
    CHECK(std::string(Error(weftTimeout, "").id()).empty());
    try {
        Communicator::all(0);
    } catch (const Error& error) {
        CHECK(std::string(error.id()) == "argument.rank" && error.failed_rank() == -1 && error.sequence() == 0);
        const std::string text = error.what();
        CHECK(text.substr(text.size() - 16) == " [argument.rank]");
    }
}

void groups_close_themselves() {
    Communicator comm = Communicator::from_environment();
    float value = 1;
    try {
        Group group;
        comm.all_reduce(static_cast<float*>(nullptr), &value, 1);
        CHECK(!"reached");
    } catch (const Error&) {
    }
    CHECK(weftGroupEnd() == weftInvalidUsage);  // none is open
}

void errors_of_groups() {
    std::vector<Communicator> comms = Communicator::all(2);
    float values[2] = {1, 2}, sums[2][2];
    Group group;
    comms[0].all_reduce(values, sums[0], 1);
    check_throws([&] { comms[0].all_reduce(static_cast<float*>(nullptr), sums[0], 1); }, weftInvalidArgument, "NULL");
    comms[1].all_reduce(values, sums[1], 2);
    check_throws([&] { group.end(); }, weftMismatch, "of the group, weftAllReduce on communicator");
    const std::vector<CallError> errors = Group::errors();
    CHECK(errors.size() == 3 && errors[1].call == 1 && errors[1].code == weftInvalidArgument);
    CHECK(errors[2].code == weftMismatch && errors[2].sentence.rfind("call 2 of the group", 0) == 0);
}

void streams_and_prepared_calls() {
    std::vector<Communicator> comms = Communicator::all(2);
    std::vector<Stream> streams;
    streams.emplace_back();
    streams.emplace_back(5);
    int values[2] = {1, 2};
    for (std::size_t rank = 0; rank < 2; ++rank) comms[rank].all_reduce(&values[rank], 1, weftSum, streams[rank]);
    for (const Stream& stream : streams) stream.wait(stream.mark());
    CHECK(values[0] == 3 && values[1] == 3);
    Group group;
    for (std::size_t rank = 0; rank < 2; ++rank) comms[rank].all_reduce(&values[rank], 1, weftSum, streams[0]);
    Prepared twice = group.prepare();
    twice.start();
    twice.start();
    streams[0].wait();
    CHECK(values[0] == 12 && values[1] == 12 && streams[0].done());
    comms[0].barrier(streams[0]);
    CHECK(!streams[0].done());
    check_throws([&] { streams[0].wait(WEFT_STREAM_ALL, 5); }, weftTimeout, "[timeout.stream]");
    comms[1].barrier();
    streams[0].wait();
    check_throws([] { Stream(-1); }, weftInvalidArgument, "priority");
}

void windows() {
    std::vector<Communicator> comms = Communicator::all(2);
    int parts[2][3] = {{0, 1, 2}, {0, 0, 0}}, got = 0;
    weftWindow_t handles[2];
    {
        Group group;
        for (std::size_t rank = 0; rank < 2; ++rank) handles[rank] = comms[rank].register_window(parts[rank], 12);
        group.end();
    }
    const int in[2] = {7, 8};
    comms[0].put(in, 1, 1, handles[0], 0);
    comms[0].put_signal(in, 2, 1, handles[0], sizeof(int), 4, 1);
    comms[1].wait_signal(0, 1, 4, 1);
    CHECK(parts[1][0] == 7 && parts[1][1] == 7 && parts[1][2] == 8);
    comms[1].get_from(&got, 1, 0, handles[1], 2 * sizeof(int));
    comms[1].signal(0);
    comms[0].wait_signal(1);
    CHECK(got == 2);
    check_throws([&] { comms[0].put(in, 2, 1, handles[0], 8); }, weftInvalidArgument, "[window.range]");
    Group group;
    for (std::size_t rank = 0; rank < 2; ++rank) comms[rank].deregister_window(handles[rank]);
    group.end();
}

void memory_and_explanation() {
    MemBuffer buffer(100 * sizeof(float)), other;
    CHECK(buffer.bytes() == 400 && buffer.as<float>()[99] == 0 && !other.data());
    void* const data = buffer.data();
    other = std::move(buffer);
    MemBuffer third(std::move(other));
    CHECK(third.data() == data && third.bytes() == 400 && !other.data());
    check_throws([] { MemBuffer(std::size_t(-1)); }, weftSystemError, "bytes");
    Communicator comm = Communicator::from_environment();
    third.as<float>()[0] = 2;
    comm.all_reduce(third.as<float>(), 100);
    CHECK(third.as<float>()[0] == 2);
    const std::string text = comm.explain(100, weftFloat32);
    CHECK_TEXT(text.c_str(), "chosen: ");
    CHECK(text.size() == strlen(text.c_str()));
    CHECK(comm.explain("all_reduce", 100, weftFloat32, weftMax) == comm.explain(100, weftFloat32, weftMax));
    CHECK_TEXT(comm.explain("broadcast", 100, weftFloat32).c_str(), "broadcast");
    check_throws([&] { comm.explain("broadcast", 100, weftFloat32, weftSum, 1); }, weftInvalidArgument, "root");
    check_throws([&] { comm.explain("al_reduce", 100, weftFloat32); }, weftInvalidArgument, "all_to_all");
    CHECK(comm.memory_bytes() >= comm.memory_bytes(weftMemFlagBlock));
}

void registrations() {
    static_assert(!std::is_copy_constructible<Registration>::value &&
                      std::is_nothrow_move_constructible<Registration>::value &&
                      std::is_nothrow_move_assignable<Registration>::value,
                  "");
    MemBuffer buffer(4096);
    std::vector<Registration> registrations;
    {
        Communicator comm(1, make_unique_id(), 0);
        registrations.push_back(comm.register_buffer(buffer.data(), buffer.bytes()));
        Registration second = comm.register_buffer(buffer.data(), 8), none;
        CHECK(registrations[0] && second && !none);
        Registration third(std::move(second));
        CHECK(third && !second);
        none = std::move(third);
        CHECK(none && !third);
        comm.all_reduce(buffer.as<float>(), 1024);
        Communicator moved = std::move(comm);
        none.deregister();
        CHECK(!none);
        check_throws([&] { none.deregister(); }, weftInvalidArgument, "no handle of weftCommRegister");
        check_throws([&] { moved.register_buffer(nullptr, 8); }, weftInvalidArgument, "buff is NULL");
        check_throws([&] { comm.register_buffer(buffer.data(), 8); }, weftInvalidArgument, "communicator is NULL");
    }
    // The communicator has ended, and with it what was registered.
    check_throws([&] { registrations[0].deregister(); }, weftInvalidArgument, "destroyed or aborted before");
}

}  // namespace

int main() {
    setenv("WEFT_DEBUG", "NONE", 1);
    run_case("ids are made and carried as text", ids_and_versions);
    run_case("C++ types have their data types, and owners cannot be copied", types);
    run_case("every collective has its method", every_collective);
    run_case("one thread drives the ranks of all()", one_thread_many_ranks);
    run_case("threads are ranks, each with its scalar", threads_as_ranks);
    run_case("communicators made in a group may be moved before it ends", inits_in_a_group);
    run_case("all() works inside a group", all_in_a_group);
    run_case("a group that an exception leaves carries nothing out", exceptions_in_groups);
    run_case("objects that die inside a group end with it", owners_that_die_in_groups);
    run_case("moved and released communicators are left empty", moves);
    run_case("communicators are split, shrunk and finalized", splits_and_shrinks);
    run_case("an exception has the code and the sentence", errors);
    run_case("a group that an exception leaves is ended", groups_close_themselves);
    run_case("a group says which of its calls failed", errors_of_groups);
    run_case("streams are waited for, prepared calls start again", streams_and_prepared_calls);
    run_case("windows are put into and got from", windows);
    run_case("registrations end with their owners", registrations);
    run_case("buffers own their memory, and explanations come whole", memory_and_explanation);
    return summary();
}
