// worker.cpp: a process with some ranks of a job on the fake driver's devices: `device_worker ID RANKS FIRST COUNT
// DEVICES STEP...`; rank r is on device r modulo DEVICES. It takes its steps in order, and writes a line for each call:
// its name, the code, the sentence.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/device/program.hpp"
#include "tests/fake_cuda/control.hpp"
#include "weft/weft.hpp"

namespace weft::test {
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

    int device(int index) const { return (first + index) % devices; }
    void tell(const std::string& call, weftResult_t code) const {
        test::tell(call + " " + std::to_string(code) + (code ? std::string(" ") + weftGetLastError(nullptr) : ""));
    }

    void init() {
        comms.assign(size_t(count), nullptr);
        streams.clear();
        demand(weftGroupStart());
        for (int index = 0; index < count; ++index) {
            const Current current(device(index));
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
        const std::vector<uint32_t> expected(elements, uint32_t(ranks * (ranks + 1) / 2));
        for (int index = 0; index < count; ++index) {
            if (on_device && elements > 0)
                memcpy(host[size_t(index)].data(), buffers[size_t(index)]->read(elements * 4).data(), elements * 4);
            if (host[size_t(index)] != expected) test::tell("wrong");
        }
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
}  // namespace weft::test

int main(int count, char** arguments) try {
    using namespace weft::test;
    if (count < 7) return fprintf(stderr, "usage: device_worker ID RANKS FIRST COUNT DEVICES STEP...\n"), 2;
    Worker worker{weft::api::unique_id_from_text(arguments[1]), atoi(arguments[2]), atoi(arguments[3]),
                  atoi(arguments[4]), atoi(arguments[5])};
    for (int i = 6; i < count; ++i) {
        const std::string step = arguments[i], verb = step.substr(0, step.find(' '));
        const size_t number = step == verb ? 0 : strtoul(step.c_str() + verb.size(), nullptr, 10);
        if (verb == "init") worker.init();
        if (verb == "reduce") worker.reduce(number, true, true);
        if (verb == "launch") worker.reduce(number, true, false);
        if (verb == "host") worker.reduce(number, false, true);
        if (verb == "error") worker.await_error();
        if (verb == "destroy") worker.destroy();
        if (verb == "say") tell(step.substr(4));
        if (verb == "pause") pause();
        if (verb == "exit") exit(0);
        // id RANKS FIRST ID: for the next communicator
        if (verb == "id") {
            char text[300];
            if (sscanf(step.c_str(), "id %d %d %299s", &worker.ranks, &worker.first, text) != 3) return 2;
            worker.id = weft::api::unique_id_from_text(text);
        }
    }
    tell("end");
    return 0;
} catch (const std::exception& exception) {
    fprintf(stderr, "%s\n", exception.what());
    return 1;
}
