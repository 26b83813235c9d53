// worker.cpp: a process with some ranks of a job on a machine's devices: `device_worker ID RANKS FIRST COUNT
// DEVICES STEP...`; rank r is on device r modulo DEVICES. It takes its steps in order, and writes a line for each call:
// its name, the code, the sentence.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "src/base/collective.hpp"
#include "tests/device/program.hpp"
#include "tests/fake_cuda/control.hpp"
#include "weft/weft.hpp"

namespace weft::internal::test {
namespace {

void tell(const std::string& line) {
    const std::string text = line + "\n";
    if (write(1, text.data(), text.size()) != ssize_t(text.size())) abort();
}

struct Worker {
    weftUniqueId id;
    int ranks, first, count, devices;
    std::vector<weftComm_t> comms{};
    std::vector<std::unique_ptr<Stream>> streams{};
    std::vector<std::unique_ptr<DeviceBuffer>> kept{};
    std::vector<void*> handles{};

    // The kind of memory of registered buffers.
    DeviceBuffer::Kind kind = DeviceBuffer::Kind::plain;

    int device(int index) const { return (first + index) % devices; }
    void tell(const std::string& call, weftResult_t code) const {
        test::tell(call + " " + std::to_string(code) + (code ? std::string(" ") + weftGetLastError(nullptr) : ""));
    }

    void init() {
        comms.assign(size_t(count), nullptr);
        streams.clear();
        demand(weftGroupStart());
        for (int index = 0; index < count; ++index) {
            const bool without = getenv("WITHOUT_DEVICE") != nullptr;
            std::optional<Current> current;
            if (!without) current.emplace(device(index));
            demand(weftCommInitRank(&comms[size_t(index)], ranks, id, first + index));
            streams.push_back(std::make_unique<Stream>(device(index)));
        }
        tell("init", weftGroupEnd());
    }
    // Sums the numbers of the ranks, from 1 on; waits for the result if asked to.
    void reduce(size_t elements, bool on_device, bool wait) {
        std::vector<std::unique_ptr<DeviceBuffer>> buffers;
        std::vector<std::vector<uint32_t>> host;
        weftResult_t first_failure = weftSuccess;
        demand(weftGroupStart());
        for (int index = 0; index < count; ++index) {
            host.emplace_back(elements, uint32_t(first + index + 1));
            buffers.push_back(std::make_unique<DeviceBuffer>(device(index), elements * 4));
            buffers.back()->write(host.back().data(), elements * 4);
            void* const data = on_device ? buffers.back()->data() : host.back().data();
            const weftResult_t result = weftAllReduce(data, data, elements, weftUint32, weftSum, comms[size_t(index)],
                                                      on_device ? streams[size_t(index)]->weft() : nullptr);
            if (first_failure == weftSuccess) first_failure = result;
        }
        std::string why = weftGetLastError(nullptr);
        const weftResult_t ended = weftGroupEnd();
        if (first_failure == weftSuccess) {
            first_failure = ended;
            why = weftGetLastError(nullptr);
        }
        if (!wait || first_failure != weftSuccess)
            test::tell("reduce " + std::to_string(first_failure) + (first_failure ? " " + why : ""));
        for (const auto& stream : streams) stream->finish();
        if (!wait || first_failure != weftSuccess) return;
        for (int index = 0; index < count; ++index) {
            if (on_device && elements > 0)
                memcpy(host[size_t(index)].data(), buffers[size_t(index)]->read(elements * 4).data(), elements * 4);
            tell_wrong(host[size_t(index)].data(), elements, uint32_t(ranks * (ranks + 1) / 2));
        }
    }
    static void tell_wrong(const uint32_t* got, size_t elements, uint32_t expected) {
        const uint32_t* const wrong = std::find_if(got, got + elements, [=](uint32_t one) { return one != expected; });
        if (wrong != got + elements)
            test::tell("wrong: element " + std::to_string(wrong - got) + " is " + std::to_string(*wrong) + ", not " +
                       std::to_string(expected));
    }
    // The kernels for floating-point numbers have limits of their own.
    void floats(size_t elements) {
        std::vector<std::unique_ptr<DeviceBuffer>> buffers;
        demand(weftGroupStart());
        for (int index = 0; index < count; ++index) {
            const std::vector<float> input(elements, float(first + index + 1));
            buffers.push_back(std::make_unique<DeviceBuffer>(device(index), elements * 4));
            buffers.back()->write(input.data(), elements * 4);
            void* const data = buffers.back()->data();
            demand(weftAllReduce(data, data, elements, weftFloat32, weftSum, comms[size_t(index)],
                                 streams[size_t(index)]->weft()));
        }
        demand(weftGroupEnd());
        for (const auto& stream : streams) stream->finish();
        for (const auto& buffer : buffers) {
            const Bytes got = buffer->read(elements * 4);
            for (size_t i = 0; i < elements; ++i) {
                float sum;
                memcpy(&sum, got.data() + 4 * i, 4);
                if (sum == float(ranks * (ranks + 1) / 2)) continue;
                test::tell("wrong: element " + std::to_string(i) + " is " + std::to_string(sum));
                break;
            }
        }
    }
    // Until the process is killed.
    void run(size_t elements) {
        const DeviceBuffer buffer(device(0), elements * 4);
        demand(
            weftAllReduce(buffer.data(), buffer.data(), elements, weftUint32, weftSum, comms[0], streams[0]->weft()));
        while (fake::running_blocks(device(0)) == 0) usleep(1000);
        test::tell("a kernel runs");
        pause();
    }
    // Every collective with parts of so many elements, rooted ones from the first and the last rank. If rank g sends
    // different parts, their values identify the receivers.
    void all(size_t elements) {
        for (int number = 1; number < int(Collective::barrier); ++number) {
            const auto collective = Collective(number);
            one(collective, 0, elements);
            if (facts_of(collective).rooted) one(collective, ranks - 1, elements);
        }
    }
    void one(Collective collective, int root, size_t elements) {
        const CollectiveFacts facts = facts_of(collective);
        const bool by_taker = facts.parted && facts.input_of_root == Held::all,
                   by_giver = facts.parted && facts.output_of_root == Held::all;
        const auto value = [&](int giver, int taker, size_t i) {
            return uint32_t(giver * 1000 + (by_taker ? taker * 7 : 0) + int(i % 5));
        };
        std::vector<std::unique_ptr<DeviceBuffer>> sends, receives;
        std::vector<std::vector<uint32_t>> expected;
        for (int rank = first; rank < first + count; ++rank) {
            std::vector<uint32_t> given, &taken = expected.emplace_back();
            if (input_of(collective, rank, root) != Held::nothing)
                for (int taker = 0; taker < (by_taker ? ranks : 1); ++taker)
                    for (size_t i = 0; i < elements; ++i) given.push_back(value(rank, taker, i));
            if (output_of(collective, rank, root) != Held::nothing)
                for (int giver = 0; giver < (by_giver ? ranks : 1); ++giver)
                    for (size_t i = 0; i < elements; ++i) {
                        uint32_t sum = 0;
                        for (int each = 0; each < ranks && facts.reduces; ++each) sum += value(each, rank, i);
                        taken.push_back(facts.reduces ? sum : value(by_giver ? giver : root, rank, i));
                    }
            sends.push_back(std::make_unique<DeviceBuffer>(device(rank - first), given.size() * 4));
            receives.push_back(std::make_unique<DeviceBuffer>(device(rank - first), taken.size() * 4));
            sends.back()->write(given.data(), given.size() * 4);
        }
        demand(weftGroupStart());
        for (size_t index = 0; index < size_t(count); ++index) {
            const void* const send = sends[index]->data();
            void* const receive = receives[index]->data();
            const auto type = weftUint32;
            weftComm_t comm = comms[index];
            const weftStream_t stream = streams[index]->weft();
            switch (collective) {
                case Collective::broadcast:
                    demand(weftBroadcast(send, receive, elements, type, root, comm, stream));
                    break;
                case Collective::reduce:
                    demand(weftReduce(send, receive, elements, type, weftSum, root, comm, stream));
                    break;
                case Collective::all_gather: demand(weftAllGather(send, receive, elements, type, comm, stream)); break;
                case Collective::reduce_scatter:
                    demand(weftReduceScatter(send, receive, elements, type, weftSum, comm, stream));
                    break;
                case Collective::all_to_all: demand(weftAlltoAll(send, receive, elements, type, comm, stream)); break;
                case Collective::gather: demand(weftGather(send, receive, elements, type, root, comm, stream)); break;
                case Collective::scatter: demand(weftScatter(send, receive, elements, type, root, comm, stream)); break;
                default: demand(weftAllReduce(send, receive, elements, type, weftSum, comm, stream));
            }
        }
        demand(weftGroupEnd());
        for (const auto& stream : streams) stream->finish();
        for (size_t index = 0; index < size_t(count); ++index) {
            const Bytes got = receives[index]->read(expected[index].size() * 4);
            if (!got.empty() && memcmp(got.data(), expected[index].data(), got.size()) != 0)
                test::tell(std::string("wrong ") + name_of(collective) + " from " + std::to_string(root));
        }
    }
    static void tell_unlike(const DeviceBuffer& buffer, const std::vector<uint32_t>& right, const char* what) {
        const Bytes got = buffer.read(right.size() * 4);
        if (!right.empty() && memcmp(got.data(), right.data(), got.size()) != 0) test::tell(what);
    }
    // A shift around the ring, with so many elements for the next rank, and an all-to-all with growing parts. Repeated,
    // so that registered buffers take the zero-copy path.
    void messages(size_t elements) {
        const size_t n = size_t(ranks), part = elements / n;
        std::vector<std::unique_ptr<DeviceBuffer>> from, to;
        std::vector<void*> registered(size_t(count) * 2);
        const auto value = [&](int rank, size_t i) { return uint32_t(rank) * 1'000'000 + uint32_t(i); };
        for (int index = 0; index < count; ++index) {
            from.push_back(std::make_unique<DeviceBuffer>(device(index), elements * 4, 0, kind));
            to.push_back(std::make_unique<DeviceBuffer>(device(index), elements * 4, 0, kind));
            std::vector<uint32_t> values;
            for (size_t i = 0; i < elements; ++i) values.push_back(value(first + index, i));
            from.back()->write(values.data(), elements * 4);
            for (const auto& [place, buffer] : {std::pair(0, from.back().get()), std::pair(1, to.back().get())})
                demand(weftCommRegister(comms[size_t(index)], buffer->data(), elements * 4,
                                        &registered[size_t(index * 2 + place)]));
        }
        const auto group = [&](auto&& call) {
            demand(weftGroupStart());
            for (int index = 0; index < count; ++index) demand(call(size_t(index), first + index));
            demand(weftGroupEnd());
            for (const auto& stream : streams) stream->finish();
        };
        for (int round = 0; round < 3; ++round) {
            group([&](size_t index, int rank) {
                return weftSendRecv(from[index]->data(), elements, (rank + 1) % ranks, to[index]->data(), elements,
                                    (rank + ranks - 1) % ranks, weftUint32, comms[index], streams[index]->weft());
            });
            for (int index = 0; index < count; ++index) {
                std::vector<uint32_t> right;
                for (size_t i = 0; i < elements; ++i) right.push_back(value((first + index + ranks - 1) % ranks, i));
                tell_unlike(*to[size_t(index)], right, "wrong shift");
            }
            std::vector<size_t> counts(n, part), places;
            for (size_t rank = 0; rank < n; ++rank) places.push_back(rank * part);
            group([&](size_t index, int) {
                return weftAlltoAllv(from[index]->data(), counts.data(), places.data(), to[index]->data(),
                                     counts.data(), places.data(), weftUint32, comms[index], streams[index]->weft());
            });
            for (int index = 0; index < count; ++index) {
                std::vector<uint32_t> right;
                for (size_t i = 0; i < n * part; ++i)
                    right.push_back(value(int(i / part), size_t(first + index) * part + i % part));
                tell_unlike(*to[size_t(index)], right, "wrong parts");
            }
            usleep(200'000);  // until the others have mapped what was registered, as a rule
        }
        for (size_t index = 0; index < registered.size(); ++index)
            while (weftCommDeregister(comms[index / 2], registered[index]) == weftTimeout) continue;
        agree(true);  // nobody calls while another still deregisters
    }
    // Each rank puts so many elements into the next one's part of a window, and gets from there what it has put.
    void window(size_t elements) {
        std::vector<std::unique_ptr<DeviceBuffer>> parts, from, to;
        std::vector<weftWindow_t> windows(static_cast<size_t>(count));
        const auto value = [&](int rank, int round, size_t i) {
            return uint32_t(rank * 100 + round) + uint32_t(i) * 7;
        };
        for (int index = 0; index < count; ++index) {
            parts.push_back(std::make_unique<DeviceBuffer>(device(index), elements * 4 + 64, 32, kind));
            from.push_back(std::make_unique<DeviceBuffer>(device(index), elements * 4));
            to.push_back(std::make_unique<DeviceBuffer>(device(index), elements * 4));
        }
        const auto group = [&](auto&& call) {
            demand(weftGroupStart());
            for (int index = 0; index < count; ++index) demand(call(size_t(index), first + index));
            demand(weftGroupEnd());
        };
        group([&](size_t index, int) {
            return weftCommWindowRegister(comms[index], parts[index]->data(), elements * 4 + 16, &windows[index], 0);
        });
        for (int round = 0; round < 3; ++round) {
            for (int index = 0; index < count; ++index) {
                std::vector<uint32_t> values;
                for (size_t i = 0; i < elements; ++i) values.push_back(value(first + index, round, i));
                from[size_t(index)]->write(values.data(), elements * 4);
            }
            group([&](size_t index, int rank) {
                const weftWaitSignalDesc_t before{1, (rank + ranks - 1) % ranks, round, 0};
                demand(weftPutSignal(from[index]->data(), elements, weftUint32, (rank + 1) % ranks, windows[index], 16,
                                     round, 0, 0, comms[index], streams[index]->weft()));
                demand(weftGet(to[index]->data(), elements, weftUint32, (rank + 1) % ranks, windows[index], 16,
                               comms[index], streams[index]->weft()));
                return weftWaitSignal(1, &before, comms[index], streams[index]->weft());
            });
            for (const auto& stream : streams) stream->finish();
            for (int index = 0; index < count; ++index) {
                std::vector<uint32_t> own, came(4, 0);
                for (size_t i = 0; i < elements; ++i) {
                    own.push_back(value(first + index, round, i));
                    came.push_back(value((first + index + ranks - 1) % ranks, round, i));
                }
                const Bytes margin = parts[size_t(index)]->read(16);
                memcpy(came.data(), margin.data(), 16);
                tell_unlike(*to[size_t(index)], own, "wrong get");
                tell_unlike(*parts[size_t(index)], came, "wrong put");
            }
            agree(true);  // nobody puts again before all have looked
        }
        sum_in(parts, elements);
        group([&](size_t index, int) { return weftCommWindowDeregister(comms[index], windows[index]); });
    }
    // Sums the numbers of the ranks, from 1 on, in place at the same offset of each rank's memory.
    void sum_in(const std::vector<std::unique_ptr<DeviceBuffer>>& parts, size_t elements) {
        elements = elements / 4 * 4;
        const auto filled = [&](int value) {
            Bytes bytes(elements * 4 + 16);
            const auto number = float(value);
            for (size_t i = 4; i < elements + 4; ++i) memcpy(&bytes[4 * i], &number, 4);
            return bytes;
        };
        for (int index = 0; index < count; ++index)
            parts[size_t(index)]->write(filled(first + index + 1).data(), elements * 4 + 16);
        demand(weftGroupStart());
        for (int index = 0; index < count; ++index) {
            void* const data = static_cast<std::byte*>(parts[size_t(index)]->data()) + 16;
            demand(weftAllReduce(data, data, elements, weftFloat32, weftSum, comms[size_t(index)],
                                 streams[size_t(index)]->weft()));
        }
        demand(weftGroupEnd());
        for (const auto& stream : streams) stream->finish();
        for (const auto& part : parts)
            if (part->read(elements * 4 + 16) != filled(ranks * (ranks + 1) / 2)) test::tell("wrong sum in a window");
    }
    // Registered and at once no more, without a call.
    void declare(size_t bytes) {
        const DeviceBuffer buffer(device(0), bytes - 1, 0, kind);
        void* handle = nullptr;
        demand(weftCommRegister(comms[0], buffer.data(), bytes - 1, &handle));
        demand(weftCommDeregister(comms[0], handle));
    }
    // One that is refused.
    void no_window(size_t elements) {
        const DeviceBuffer part(device(0), elements * 4, 0, kind);
        weftWindow_t window = nullptr;
        tell("window", weftCommWindowRegister(comms[0], part.data(), elements * 4, &window, 0));
    }
    // The result of a call in a stream that is captured.
    void captured(size_t elements) {
        const DeviceBuffer buffer(device(0), elements * 4);
        const Current current(device(0));
        demand(cuStreamBeginCapture(streams[0]->handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        tell("captured",
             weftAllReduce(buffer.data(), buffer.data(), elements, weftUint32, weftSum, comms[0], streams[0]->weft()));
        CUgraph graph;
        demand(cuStreamEndCapture(streams[0]->handle, &graph));
        demand(cuGraphDestroy(graph));
    }
    // A window, and a signal of the last rank's that never comes.
    void wait_signal() {
        const DeviceBuffer part(device(0), 64);
        weftWindow_t window = nullptr;
        demand(weftCommWindowRegister(comms[0], part.data(), 64, &window, 0));
        const weftWaitSignalDesc_t last{1, ranks - 1, 0, 0};
        if (first == ranks - 1) {
            test::tell("registered");
            pause();
        }
        tell("wait", weftWaitSignal(1, &last, comms[0], streams[0]->weft()));
        streams[0]->finish();
        weftResult_t state = weftSuccess;
        while (state == weftSuccess) demand(weftCommGetAsyncError(comms[0], &state));
        tell("error", weftSignal(0, 0, 0, 0, comms[0], streams[0]->weft()));
        tell("end of window", weftCommWindowDeregister(comms[0], window));
    }
    // Forty messages to each other rank and as many from it, in one group, of sizes around so many elements.
    void crossing(size_t elements) {
        constexpr size_t each = 40;
        const auto size = [&](size_t number) { return number * elements / each + number % 3; };
        const size_t room = elements + 3;
        const auto value = [&](int from, int to, size_t number, size_t i) {
            return uint32_t(from * 1'000'003 + to * 10'007 + int(number) * 101) + uint32_t(i);
        };
        struct Message {
            size_t index;
            int peer;
            size_t number;
            std::unique_ptr<DeviceBuffer> from, to;
        };
        std::vector<Message> all;
        for (int index = 0; index < count; ++index)
            for (int peer = 0; peer < ranks; ++peer)
                for (size_t number = 0; peer != first + index && number < each; ++number) {
                    std::vector<uint32_t> values;
                    for (size_t i = 0; i < size(number); ++i) values.push_back(value(first + index, peer, number, i));
                    all.push_back({size_t(index), peer, number, std::make_unique<DeviceBuffer>(device(index), room * 4),
                                   std::make_unique<DeviceBuffer>(device(index), room * 4)});
                    all.back().from->write(values.data(), values.size() * 4);
                }
        demand(weftGroupStart());
        for (const Message& one : all) {
            weftComm_t comm = comms[one.index];
            const weftStream_t stream = streams[one.index]->weft();
            demand(weftSend(one.from->data(), size(one.number), weftUint32, one.peer, comm, stream));
            demand(weftRecv(one.to->data(), size(one.number), weftUint32, one.peer, comm, stream));
        }
        demand(weftGroupEnd());
        for (const auto& stream : streams) stream->finish();
        for (const Message& one : all) {
            std::vector<uint32_t> right;
            for (size_t i = 0; i < size(one.number); ++i)
                right.push_back(value(one.peer, first + int(one.index), one.number, i));
            tell_unlike(*one.to, right, "wrong crossing message");
        }
    }
    // An all-to-all with counts on the device, around so many elements, which another round changes.
    void counted(size_t elements) {
        const size_t n = size_t(ranks), room = n * (elements + 3 * n);
        const auto sent = [&](size_t from, size_t to, size_t round) {
            return (from + to + round) % 4 == 0 ? 0 : elements + (from * n + to + round) % (3 * n);
        };
        const auto value = [&](size_t from, size_t to, size_t i) { return uint32_t(from * 100'003 + to * 1'009 + i); };
        for (size_t round = 0; round < 3; ++round) {
            std::vector<std::unique_ptr<DeviceBuffer>> from, to;
            std::vector<std::unique_ptr<Numbers>> numbers;
            std::vector<std::vector<uint32_t>> right;
            demand(weftGroupStart());
            for (int index = 0; index < count; ++index) {
                const auto own = size_t(first + index);
                std::vector<uint32_t> values, &expected = right.emplace_back();
                std::vector<size_t> counts, places, received, receive_places;
                for (size_t peer = 0; peer < n; ++peer) {
                    places.push_back(values.size());
                    counts.push_back(sent(own, peer, round));
                    for (size_t i = 0; i < counts.back(); ++i) values.push_back(value(own, peer, i));
                    receive_places.push_back(expected.size());
                    received.push_back(sent(peer, own, round));
                    for (size_t i = 0; i < received.back(); ++i) expected.push_back(value(peer, own, i));
                }
                from.push_back(std::make_unique<DeviceBuffer>(device(index), room * 4));
                to.push_back(std::make_unique<DeviceBuffer>(device(index), room * 4));
                from.back()->write(values.data(), values.size() * 4);
                for (const auto* each : {&counts, &places, &received, &receive_places})
                    numbers.push_back(std::make_unique<Numbers>(device(index), *each));
                const auto* const its = &numbers[size_t(index) * 4];
                demand(weftAlltoAllvDeviceCounts(from.back()->data(), its[0]->data(), its[1]->data(), to.back()->data(),
                                                 its[2]->data(), its[3]->data(), weftUint32, comms[size_t(index)],
                                                 streams[size_t(index)]->weft()));
            }
            demand(weftGroupEnd());
            for (const auto& stream : streams) stream->finish();
            for (size_t index = 0; index < right.size(); ++index)
                tell_unlike(*to[index], right[index], "wrong counted parts");
        }
    }
    int other_end() const { return first == ranks - 1 ? 0 : ranks - 1; }
    // Waits for a message of the last rank's, or as the last one of the first's, which never sends one.
    void receive(size_t elements) {
        const DeviceBuffer buffer(device(0), elements * 4);
        tell("receive", weftRecv(buffer.data(), elements, weftUint32, other_end(), comms[0], streams[0]->weft()));
        streams[0]->finish();
    }
    // The same in a graph.
    void receive_in_graph(size_t elements) {
        const DeviceBuffer buffer(device(0), elements * 4);
        const Current current(device(0));
        CUgraph graph = nullptr;
        CUgraphExec launched = nullptr;
        demand(cuStreamBeginCapture(streams[0]->handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        tell("receive", weftRecv(buffer.data(), elements, weftUint32, other_end(), comms[0], streams[0]->weft()));
        demand(cuStreamEndCapture(streams[0]->handle, &graph));
        demand(cuGraphInstantiateWithFlags(&launched, graph, 0));
        demand(cuGraphDestroy(graph));
        demand(cuGraphLaunch(launched, streams[0]->handle));
        streams[0]->finish();
        demand(cuGraphExecDestroy(launched));
    }
    void send(size_t elements) {
        const DeviceBuffer buffer(device(0), elements * 4);
        tell("send", weftSend(buffer.data(), elements, weftUint32, other_end(), comms[0], streams[0]->weft()));
        streams[0]->finish();
    }
    // Leaves at once, though its stream comes to the message later, when nobody waits for data of a network any more
    // (RemoteHealth::departed_us).
    void send_late(size_t elements) {
        kept.push_back(std::make_unique<DeviceBuffer>(device(0), elements * 4));
        demand(cuLaunchHostFunc(
            streams[0]->handle, [](void*) { usleep(5'700'000); }, nullptr));
        demand(weftSend(kept[0]->data(), elements, weftUint32, other_end(), comms[0], streams[0]->weft()));
        destroy();
    }
    void tell_state() const {
        weftResult_t state = weftSuccess;
        demand(weftCommGetAsyncError(comms[0], &state));
        test::tell("state " + std::to_string(state));
    }
    // Enqueues calls and leaves at once; the enqueued calls complete.
    void leave(size_t elements) {
        constexpr int calls = 3;
        std::vector<std::unique_ptr<DeviceBuffer>> buffers;
        uint32_t expected = uint32_t(ranks * (ranks + 1) / 2);
        for (int index = 0; index < count; ++index) {
            const std::vector<uint32_t> values(elements, uint32_t(first + index + 1));
            buffers.push_back(std::make_unique<DeviceBuffer>(device(index), elements * 4));
            buffers.back()->write(values.data(), elements * 4);
        }
        demand(weftGroupStart());
        for (int call = 0; call < calls; ++call)
            for (size_t index = 0; index < buffers.size(); ++index)
                demand(weftAllReduce(buffers[index]->data(), buffers[index]->data(), elements, weftUint32, weftSum,
                                     comms[index], streams[index]->weft()));
        demand(weftGroupEnd());
        for (weftComm_t comm : comms) tell("destroy", weftCommDestroy(comm));
        comms.clear();
        for (int call = 1; call < calls; ++call) expected *= uint32_t(ranks);
        for (const auto& buffer : buffers) {
            std::vector<uint32_t> got(elements);
            memcpy(got.data(), buffer->read(elements * 4).data(), elements * 4);
            tell_wrong(got.data(), elements, expected);
        }
    }
    // Leaves while its stream has not reached its kernel. Later a thread that ends another communicator unmaps peers'
    // memory of this one and waits for the device; meanwhile a third thread makes one more.
    void leave_stuck() {
        const auto gate = [](void* open) {
            while (!static_cast<std::atomic<bool>*>(open)->load()) usleep(1000);
        };
        const int own = device(0);
        const Stream busy(own);
        const DeviceBuffer buffer(own, 40);
        std::atomic<bool> comes{false}, idle{false}, made{false};
        weftComm_t ended = nullptr, more = nullptr;
        demand(weftCommInitAll(&ended, 1, &own));
        demand(cuLaunchHostFunc(streams[0]->handle, gate, &comes));
        demand(weftAllReduce(buffer.data(), buffer.data(), 10, weftUint32, weftSum, comms[0], streams[0]->weft()));
        demand(weftCommAbort(comms[0]));
        tell("destroy", weftCommDestroy(comms[0]));
        comms.clear();
        demand(cuLaunchHostFunc(busy.handle, gate, &idle));
        comes = true;
        streams[0]->finish();
        const int unmapped = fake::calls("cuIpcCloseMemHandle");
        std::thread ending([&] { demand(weftCommDestroy(ended)); });
        while (fake::calls("cuIpcCloseMemHandle") == unmapped) usleep(1000);
        std::thread making([&] {
            demand(weftCommInitAll(&more, 1, &own));
            made = true;
        });
        for (int round = 0; round < 10'000 && !made; ++round) usleep(1000);
        if (!made) test::tell("wrong: waits for the device");
        idle = true;
        ending.join();
        making.join();
        demand(weftCommDestroy(more));
    }
    // A call, and the end of the process as soon as its own part is done.
    void vanish(size_t elements) {
        reduce(elements, true, true);
        exit(0);
    }
    // Registers buffers that live as long as the communicators.
    void keep(size_t elements) {
        void* handle = nullptr;
        for (int index = 0; index < count; ++index) {
            kept.push_back(std::make_unique<DeviceBuffer>(device(index), elements * 4, 0, kind));
            demand(weftCommRegister(comms[size_t(index)], kept.back()->data(), elements * 4, &handle));
            handles.push_back(handle);
        }
        usleep(200'000);  // until the others have mapped them, as a rule
    }
    // The same with many small allocations, which are kept as long as the communicator.
    void crowd(int allocations) {
        void* handle = nullptr;
        for (int each = 0; each < allocations; ++each)
            for (int index = 0; index < count; ++index) {
                kept.push_back(std::make_unique<DeviceBuffer>(device(index), 64, 0, kind));
                demand(weftCommRegister(comms[size_t(index)], kept.back()->data(), 64, &handle));
            }
    }
    // Those of the first rank that may be given back.
    void drop() {
        for (void*& handle : handles) {
            if (handle == nullptr) continue;
            const weftResult_t result = weftCommDeregister(comms[0], handle);
            tell("deregister", result);
            if (result == weftSuccess) handle = nullptr;
        }
    }
    // How often ranks of this process have offered buffers in place, as its log says.
    static int offers() {
        std::string name = getenv("WEFT_DEBUG_FILE"), line;
        name.replace(name.find("%p"), 2, std::to_string(getpid()));
        std::ifstream log(name);
        int lines = 0;
        while (std::getline(log, line)) lines += line.find("offers its ") != std::string::npos;
        return lines;
    }
    // Whether all ranks say yes.
    bool agree(bool yes) {
        std::vector<uint32_t> answers(size_t(count), yes);
        demand(weftGroupStart());
        for (size_t index = 0; index < answers.size(); ++index)
            demand(weftAllReduce(&answers[index], &answers[index], 1, weftUint32, weftMin, comms[index], nullptr));
        demand(weftGroupEnd());
        return answers[0] != 0;
    }
    // The same sum again and again in the same buffers, which are registered or not.
    struct Sums {
        Sums(Worker& of, size_t count, bool registers)
            : worker(of),
              elements(count),
              expected(count, uint32_t(of.ranks * (of.ranks + 1) / 2)),
              handles(registers ? size_t(of.count) * 2 : 0) {
            for (int index = 0; index < of.count; ++index) {
                from.push_back(std::make_unique<DeviceBuffer>(of.device(index), elements * 4, 256, of.kind));
                to.push_back(std::make_unique<DeviceBuffer>(of.device(index), elements * 4, 64, of.kind));
                const std::vector<uint32_t> values(elements, uint32_t(of.first + index + 1));
                from.back()->write(values.data(), elements * 4);
                // A part of an allocation, and another.
                for (const auto& [place, buffer] : {std::pair(0, from.back().get()), std::pair(1, to.back().get())})
                    if (registers)
                        demand(weftCommRegister(of.comms[size_t(index)], buffer->data(), elements * 4,
                                                &handles[size_t(index * 2 + place)]));
            }
        }
        // Once; how many ranks of this process have offered their buffers in place.
        int once() const {
            const int before = offers();
            enqueue();
            check();
            return offers() - before;
        }
        void enqueue() const {
            demand(weftGroupStart());
            for (size_t index = 0; index < from.size(); ++index)
                demand(weftAllReduce(from[index]->data(), to[index]->data(), elements, weftUint32, weftSum,
                                     worker.comms[index], worker.streams[index]->weft()));
            demand(weftGroupEnd());
        }
        void check() const {
            for (const auto& stream : worker.streams) stream->finish();
            const std::vector<uint32_t> nothing(elements, 0);
            for (const auto& buffer : to) {
                const Bytes got = buffer->read(elements * 4);
                if (memcmp(got.data(), expected.data(), elements * 4) != 0) test::tell("wrong");
                buffer->write(nothing.data(), elements * 4);
            }
        }
        void deregister() {
            for (size_t index = 0; index < handles.size(); ++index)
                while (weftCommDeregister(worker.comms[index / 2], handles[index]) == weftTimeout)
                    continue;    // others may be slow
            worker.agree(true);  // nobody calls while another still deregisters
        }

        Worker& worker;
        size_t elements;
        std::vector<uint32_t> expected;
        std::vector<void*> handles;
        std::vector<std::unique_ptr<DeviceBuffer>> from{}, to{};
    };
    // Until each rank has offered its registered buffers in place, and after they are not registered any more.
    void registered(size_t elements) {
        Sums sums(*this, elements, true);
        // Ranks map in their own time: all go on when all have offered.
        for (bool all = false; !all; usleep(10'000)) all = agree(sums.once() == count);
        test::tell("registered");
        sums.deregister();
        if (sums.once() != 0) test::tell("wrong");
    }
    // Buffers that nobody has registered are used in place by graphs, until the last graph that uses them has gone.
    void graphs(size_t elements) {
        const Sums sums(*this, elements, false);
        if (sums.once() != 0) test::tell("wrong: offered before a capture");
        std::vector<std::vector<CUgraphExec>> captured;  // by capture and rank
        const auto capture = [&] {
            const int before = offers();
            captured.push_back(graphs_of(sums));
            return offers() - before;
        };
        const auto launch = [&] { launch_graphs(captured.back(), sums); };
        const auto end_oldest = [&] {
            for (CUgraphExec graph : captured.front()) demand(cuGraphExecDestroy(graph));
            captured.erase(captured.begin());
        };
        // Other processes may be slow to map them: the next graph has them.
        for (bool all = false; !all;) all = agree(capture() == count);
        (void)capture();
        for (int round = 0; round < 2; ++round) launch();
        while (captured.size() > 1) end_oldest();
        if (sums.once() != count) test::tell("wrong: no longer offered though a graph uses them");
        launch();
        end_oldest();
        agree(true);
        if (sums.once() != 0) test::tell("wrong: offered without a graph");
        captured_messages(elements);
        test::tell("graphs");
    }
    std::vector<CUgraphExec> graphs_of(const Sums& sums) {
        for (const auto& stream : streams) {
            const Current current(stream->device);
            demand(cuStreamBeginCapture(stream->handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        }
        sums.enqueue();
        std::vector<CUgraphExec> made;
        for (const auto& stream : streams) {
            const Current current(stream->device);
            CUgraph graph = nullptr;
            demand(cuStreamEndCapture(stream->handle, &graph));
            demand(cuGraphInstantiateWithFlags(&made.emplace_back(), graph, 0));
            demand(cuGraphDestroy(graph));
        }
        return made;
    }
    void launch_graphs(const std::vector<CUgraphExec>& graphs, const Sums& sums) {
        for (int index = 0; index < count; ++index) {
            const Current current(device(index));
            demand(cuGraphLaunch(graphs[size_t(index)], streams[size_t(index)]->handle));
        }
        sums.check();
    }
    // Graphs with the buffers of each round behind the switch: over all rounds more than there are places. Or never,
    // because some rank's memory is of another kind.
    void switched_graphs(size_t elements, bool in_place) {
        for (int round = 0; round < (in_place ? 20 : 3); ++round) {
            const Sums sums(*this, elements, false);
            for (bool all = false; !all;) {
                const int before = offers();
                const std::vector<CUgraphExec> graphs = graphs_of(sums);
                const int offered = offers() - before;
                if (!in_place && offered != 0) test::tell("wrong: offered");
                for (int launch = 0; launch < 2; ++launch) launch_graphs(graphs, sums);
                for (CUgraphExec graph : graphs) demand(cuGraphExecDestroy(graph));
                // Another process may be late: then the next graph has them.
                all = !in_place || agree(offered == count);
            }
            if (sums.once() != 0) test::tell("wrong: offered without a graph");
        }
        test::tell("graphs");
    }
    // A long message from each rank to the next, in a graph, of buffers that nobody has registered. It is launched several
    // times in a row, and again with other contents.
    void captured_messages(size_t elements) {
        std::vector<std::unique_ptr<DeviceBuffer>> from, to;
        std::vector<CUgraphExec> graphs;
        for (int index = 0; index < count; ++index)
            for (auto* buffers : {&from, &to})
                buffers->push_back(std::make_unique<DeviceBuffer>(device(index), elements * 4, 0, kind));
        for (const auto& stream : streams) {
            const Current current(stream->device);
            demand(cuStreamBeginCapture(stream->handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        }
        demand(weftGroupStart());
        for (int index = 0; index < count; ++index) {
            const auto i = size_t(index);
            const int rank = first + index;
            demand(weftSendRecv(from[i]->data(), elements, (rank + 1) % ranks, to[i]->data(), elements,
                                (rank + ranks - 1) % ranks, weftUint32, comms[i], streams[i]->weft()));
        }
        demand(weftGroupEnd());
        for (const auto& stream : streams) {
            const Current current(stream->device);
            CUgraph graph = nullptr;
            demand(cuStreamEndCapture(stream->handle, &graph));
            demand(cuGraphInstantiateWithFlags(&graphs.emplace_back(), graph, 0));
            demand(cuGraphDestroy(graph));
        }
        for (const int launches : {3, 1, 2}) {
            const auto contents = [&](int rank) { return std::vector(elements, uint32_t(rank * 10 + launches)); };
            for (int index = 0; index < count; ++index)
                from[size_t(index)]->write(contents(first + index).data(), elements * 4);
            for (int launch = 0; launch < launches; ++launch)
                for (size_t index = 0; index < graphs.size(); ++index) {
                    const Current current(streams[index]->device);
                    demand(cuGraphLaunch(graphs[index], streams[index]->handle));
                }
            for (const auto& stream : streams) stream->finish();
            for (int index = 0; index < count; ++index)
                tell_unlike(*to[size_t(index)], contents((first + index + ranks - 1) % ranks), "wrong message");
            agree(true);  // nobody writes while a peer still reads in place
        }
        for (CUgraphExec graph : graphs) demand(cuGraphExecDestroy(graph));
        agree(true);
    }
    // Some rank's buffers cannot be used in place, though they are registered. Each rank counts its own exports.
    void staged(size_t elements) {
        Sums sums(*this, elements, true);
        for (int round = 0; round < 3; ++round) {
            test::tell("offered " + std::to_string(sums.once()));
            usleep(200'000);
        }
        sums.deregister();
    }
    // Ranks of one process, whose buffers are used in place without being registered.
    void in_place(size_t elements) {
        if (Sums(*this, elements, false).once() != count) test::tell("wrong: not offered");
    }
    // All-gathers by copy engines, from buffers that are registered or lie in windows.
    void copies(size_t elements, bool in_windows) {
        weftCallConfig_t without_kernels = WEFT_CALL_CONFIG_INITIALIZER;
        without_kernels.blockPolicy = WEFT_BLOCK_POLICY_ZERO;
        for (weftComm_t comm : comms) demand(weftCommSetCallConfig(comm, &without_kernels));
        std::vector<std::unique_ptr<DeviceBuffer>> from, to;
        for (int index = 0; index < count; ++index) {
            from.push_back(std::make_unique<DeviceBuffer>(device(index), elements * 4, 64, kind));
            to.push_back(std::make_unique<DeviceBuffer>(device(index), elements * 4 * size_t(ranks), 64, kind));
        }
        // Whether no kernel was launched.
        const auto enqueue = [&] {
            const int before = fake::calls("cuLaunchKernelEx");
            demand(weftGroupStart());
            for (size_t index = 0; index < size_t(count); ++index)
                demand(weftAllGather(from[index]->data(), to[index]->data(), elements, weftUint32, comms[index],
                                     streams[index]->weft()));
            demand(weftGroupEnd());
            return fake::calls("cuLaunchKernelEx") == before;
        };
        const auto gather = [&](uint32_t add) {
            for (int index = 0; index < count; ++index) {
                const std::vector<uint32_t> own(elements, uint32_t(first + index) + add);
                from[size_t(index)]->write(own.data(), elements * 4);
            }
            const bool without_kernel = enqueue();
            for (int index = 0; index < count; ++index) {
                streams[size_t(index)]->finish();
                const Bytes got = to[size_t(index)]->read(elements * 4 * size_t(ranks));
                for (int rank = 0; rank < ranks; ++rank)
                    tell_wrong(reinterpret_cast<const uint32_t*>(got.data()) + elements * size_t(rank), elements,
                               uint32_t(rank) + add);
            }
            return without_kernel;
        };
        if (gather(1)) test::tell("wrong: no kernel, though nothing is registered");
        in_windows ? copies_in_windows(from, elements, gather, enqueue) : copies_registered(from, elements, gather);
        for (weftComm_t comm : comms) demand(weftCommSetCallConfig(comm, nullptr));
    }
    using Buffers = std::vector<std::unique_ptr<DeviceBuffer>>;
    // All parts of a window are mapped when it is registered. Graphs may outlive it; they do not register buffers here.
    template <class Gather, class Enqueue>
    void copies_in_windows(const Buffers& from, size_t elements, Gather&& gather, Enqueue&& enqueue) {
        std::vector<weftWindow_t> windows(static_cast<size_t>(count));
        const auto all = [&](auto&& call) {
            demand(weftGroupStart());
            for (int index = 0; index < count; ++index) demand(call(size_t(index)));
            demand(weftGroupEnd());
        };
        all([&](size_t index) {
            return weftCommWindowRegister(comms[index], from[index]->data(), elements * 4, &windows[index], 0);
        });
        agree(true);
        for (uint32_t round = 2; round < 5; ++round)
            if (!gather(round)) test::tell("wrong: a kernel, though the send buffers lie in windows");
        test::tell("copied");
        for (const auto& stream : streams) {
            const Current current(stream->device);
            demand(cuStreamBeginCapture(stream->handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        }
        if (enqueue()) test::tell("wrong: no kernel in a graph, which may outlive the windows");
        for (const auto& stream : streams) {
            const Current current(stream->device);
            CUgraph graph = nullptr;
            demand(cuStreamEndCapture(stream->handle, &graph));
            demand(cuGraphDestroy(graph));
        }
        all([&](size_t index) { return weftCommWindowDeregister(comms[index], windows[index]); });
        agree(true);
        if (gather(5)) test::tell("wrong: no kernel after the windows");
    }
    // Until all ranks have mapped the buffers; then without kernels.
    template <class Gather>
    void copies_registered(const Buffers& from, size_t elements, Gather&& gather) {
        std::vector<void*> registered(size_t(count), nullptr);
        // Only some ranks first.
        const auto register_own = [&](bool even) {
            for (int index = 0; index < count; ++index)
                if (((first + index) % 2 == 0) == even)
                    demand(weftCommRegister(comms[size_t(index)], from[size_t(index)]->data(), elements * 4,
                                            &registered[size_t(index)]));
        };
        register_own(true);
        for (uint32_t round = 2; round < 4; ++round)
            if (gather(round)) test::tell("wrong: no kernel, though a rank has not registered");
        register_own(false);
        uint32_t round = 4;
        for (bool all = false; !all; usleep(10'000)) all = agree(gather(round++));
        for (int more = 0; more < 3; ++more)
            if (!gather(round++)) test::tell("wrong: a kernel");
        test::tell("copied");
        for (int index = 0; index < count; ++index)
            while (weftCommDeregister(comms[size_t(index)], registered[size_t(index)]) == weftTimeout) continue;
        agree(true);
        if (gather(round)) test::tell("wrong: no kernel after deregistration");
    }
    // All-gathers by copy engines, for which the last rank's stream is late. Then its process is killed.
    void copies_late() {
        weftCallConfig_t without_kernels = WEFT_CALL_CONFIG_INITIALIZER;
        without_kernels.blockPolicy = WEFT_BLOCK_POLICY_ZERO;
        demand(weftCommSetCallConfig(comms[0], &without_kernels));
        // Registered memory is freed after the communicator.
        kept.push_back(std::make_unique<DeviceBuffer>(device(0), 400));
        kept.push_back(std::make_unique<DeviceBuffer>(device(0), 400 * size_t(ranks)));
        void* const from = kept[0]->data();
        void *registered = nullptr, *const to = kept[1]->data();
        demand(weftCommRegister(comms[0], from, 400, &registered));
        const auto gather = [&] { return weftAllGather(from, to, 100, weftUint32, comms[0], streams[0]->weft()); };
        for (bool all = false; !all; usleep(10'000)) {
            const int before = fake::calls("cuLaunchKernelEx");
            demand(gather());
            all = agree(fake::calls("cuLaunchKernelEx") == before);
        }
        streams[0]->finish();
        const bool last = first + 1 == ranks;
        const auto never = [](void*) { pause(); };
        if (last) demand(cuLaunchHostFunc(streams[0]->handle, never, nullptr));
        for (int call = 0; call < 3; ++call) demand(gather());
        test::tell("enqueued");
        if (last) pause();
        await_error();
        streams[0]->finish();
        test::tell("released");
    }
    // Until something is wrong with the first communicator.
    void await_error() {
        weftResult_t state = weftSuccess;
        while (state == weftSuccess) {
            demand(weftCommGetAsyncError(comms[0], &state));
            usleep(1000);
        }
        uint32_t value = 0;
        tell("error", weftAllReduce(&value, &value, 1, weftUint32, weftSum, comms[0], nullptr));
    }
    void destroy() {
        for (weftComm_t comm : comms) tell("destroy", weftCommDestroy(comm));
        comms.clear();
        kept.clear();
        // Peers that leave late keep our memory: it is given back when another communicator ends after that.
        for (int round = 0; round < 3000 && fake::leaks().find("cuMemAlloc") != std::string::npos; ++round) {
            usleep(20'000);
            const int own = device(0);
            weftComm_t other = nullptr;
            demand(weftCommInitAll(&other, 1, &own));
            demand(weftCommDestroy(other));
        }
    }
};

}  // namespace
}  // namespace weft::internal::test

int main(int count, char** arguments) try {
    using namespace weft::internal::test;
    if (count < 7) return fprintf(stderr, "usage: device_worker ID RANKS FIRST COUNT DEVICES STEP...\n"), 2;
    Worker worker{weft::unique_id_from_text(arguments[1]), atoi(arguments[2]), atoi(arguments[3]), atoi(arguments[4]),
                  atoi(arguments[5])};
    for (int i = 6; i < count; ++i) {
        const std::string step = arguments[i], verb = step.substr(0, step.find(' '));
        const size_t number = step == verb ? 0 : strtoul(step.c_str() + verb.size(), nullptr, 10);
        if (verb == "init") worker.init();
        if (verb == "reduce") worker.reduce(number, true, true);
        if (verb == "floats") worker.floats(number);
        if (verb == "launch") worker.reduce(number, true, false);
        if (verb == "run") worker.run(number);
        if (verb == "all") worker.all(number);
        if (verb == "host") worker.reduce(number, false, true);
        if (verb == "leave") worker.leave(number);
        if (verb == "leave_stuck") worker.leave_stuck();
        if (verb == "vanish") worker.vanish(number);
        if (verb == "keep") worker.keep(number);
        if (verb == "drop") worker.drop();
        if (verb == "await")  // FILE
            while (access(step.c_str() + 6, F_OK) != 0) usleep(1000);
        if (verb == "memory") worker.kind = DeviceBuffer::Kind(number);
        if (verb == "crowd") worker.crowd(int(number));
        if (verb == "graphs") worker.graphs(number);
        if (verb == "switched_graphs") worker.switched_graphs(number, true);
        if (verb == "staged_graphs") worker.switched_graphs(number, false);
        if (verb == "registered") worker.registered(number);
        if (verb == "staged") worker.staged(number);
        if (verb == "copies") worker.copies(number, false);
        if (verb == "copies_in_windows") worker.copies(number, true);
        if (verb == "copies_late") worker.copies_late();
        if (verb == "in_place") worker.in_place(number);
        if (verb == "messages") worker.messages(number);
        if (verb == "crossing") worker.crossing(number);
        if (verb == "counted") worker.counted(number);
        if (verb == "receive") worker.receive(number);
        if (verb == "receive_in_graph") worker.receive_in_graph(number);
        if (verb == "send") worker.send(number);
        if (verb == "send_late") worker.send_late(number);
        if (verb == "replays") worker.captured_messages(number);
        if (verb == "state") worker.tell_state();
        if (verb == "window") worker.window(number);
        if (verb == "declare") worker.declare(number);
        if (verb == "captured") worker.captured(number);
        if (verb == "no_window") worker.no_window(number);
        if (verb == "wait_signal") worker.wait_signal();
        if (verb == "error") worker.await_error();
        if (verb == "destroy") worker.destroy();
        if (verb == "say") tell(step.substr(4));
        if (verb == "pause") pause();
        if (verb == "fault") weft::internal::fake::add_setting(step);
        if (verb == "exit") exit(0);
        // id RANKS FIRST ID: for the next communicator
        if (verb == "id") {
            char text[300];
            if (sscanf(step.c_str(), "id %d %d %299s", &worker.ranks, &worker.first, text) != 3) return 2;
            worker.id = weft::unique_id_from_text(text);
        }
    }
    tell("end");
    return 0;
} catch (const std::exception& exception) {
    fprintf(stderr, "%s\n", exception.what());
    return 1;
}
