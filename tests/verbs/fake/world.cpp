// world.cpp: the statements of api.hpp.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <utility>

#include "tests/verbs/fake/api.hpp"
#include "tests/verbs/fake/fake.hpp"

namespace weft::internal::test::fake_ibverbs {

namespace {

abi::GidEntry gid_row(const std::string& text, int port, int index, uint32_t type, uint32_t interface) {
    abi::GidEntry entry{};
    std::string digits = text;
    std::erase(digits, ':');
    for (size_t i = 0; i < 16 && 2 * i + 1 < digits.size(); ++i)
        entry.gid[i] = uint8_t(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
    entry.index = uint32_t(index);
    entry.port = uint32_t(port);
    entry.type = type;
    entry.interface = interface;
    return entry;
}

// As a port of RoCE has them: link-local and IPv4, each for both versions. Each device has its own subnet.
void set_port(Port& port, int number, int device) {
    port.lid = uint16_t(device + 1 + 64 * (number - 1));
    char link_local[48], ipv4[48];
    snprintf(link_local, sizeof link_local, "fe80:0000:0000:0000:0000:00ff:fe00:%04x", unsigned(port.lid));
    snprintf(ipv4, sizeof ipv4, "0000:0000:0000:0000:0000:ffff:0a4d:%04x", unsigned(256 * device + number));
    port.gids = {{0, gid_row(link_local, number, 0, 1, 1)},
                 {1, gid_row(link_local, number, 1, 2, 1)},
                 {2, gid_row(ipv4, number, 2, 1, 1)},
                 {3, gid_row(ipv4, number, 3, 2, 1)}};
}

std::unique_ptr<Device> make_device(const std::string& name, size_t number) {
    auto device = std::make_unique<Device>();
    static_cast<abi::DeviceRow&>(*device) = {};
    strncpy(device->name, name.c_str(), sizeof device->name - 1);
    strncpy(device->file, ("uverbs" + std::to_string(number)).c_str(), sizeof device->file - 1);
    strncpy(device->device_path, ("/sys/class/infiniband/" + name).c_str(), sizeof device->device_path - 1);
    set_port(device->port(1), 1, int(number));
    return device;
}

}  // namespace

int64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

World& World::get() {
    static World* const world = [] {
        auto* made = new World;  // engines may still use it when the process ends
        if (const char* text = std::getenv("FAKE_IBVERBS"); text && made->run(text) != 0)
            misuse("FAKE_IBVERBS has a statement that fake_ibverbs does not know");
        return made;
    }();
    return *world;
}

World::World() {
    devices.push_back(make_device("fake0", 0));
    devices.push_back(make_device("fake1", 1));
}

uint64_t World::random(uint64_t below) {
    std::lock_guard held(mutex);
    return below == 0 ? 0 : numbers() % below;
}

Device* World::find(const std::string& name) {
    for (const auto& device : devices)
        if (name == device->name) return device.get();
    return nullptr;
}

int World::failing(const char* function) {
    if (failures_left.load(std::memory_order_relaxed) == 0) return 0;
    std::lock_guard held(mutex);
    for (auto failure = failures.begin(); failure != failures.end(); ++failure) {
        if (failure->function != function || --failure->calls > 0) continue;
        const int error = failure->error;
        failures.erase(failure);
        --failures_left;
        return error;
    }
    return 0;
}

uint32_t World::key_of_put(uint32_t key) {
    std::lock_guard held(mutex);
    if (old_key_after == 0) return key;
    if (first_put_key == 0) first_put_key = key;
    return --old_key_after == 0 ? first_put_key : key;
}

bool World::loses_request() {
    std::lock_guard held(mutex);
    for (auto statement = later.begin(); statement != later.end();) {
        if (--statement->first > 0) {
            ++statement;
            continue;
        }
        due.push_back(statement->second);
        statement = later.erase(statement);
    }
    for (auto loss = losses.begin(); loss != losses.end(); ++loss) {
        if (--loss->first > 0) continue;
        if (--loss->second <= 0) losses.erase(loss);
        ++lost;
        return true;
    }
    return false;
}

int World::completion_status() {
    std::lock_guard held(mutex);
    for (auto completion = completions.begin(); completion != completions.end(); ++completion) {
        if (--completion->first > 0) continue;
        const int status = completion->second;
        completions.erase(completion);
        return status;
    }
    return 0;
}

std::vector<std::string> World::take_due() {
    std::lock_guard held(mutex);
    return std::exchange(due, {});
}

int World::run(const std::string& statements) {
    std::istringstream all(statements);
    int number = 0;
    for (std::string text; std::getline(all, text, ';');) {
        ++number;
        if (text.find_first_not_of(" \n") != std::string::npos && !statement(text)) return number;
    }
    return 0;
}

bool World::statement(const std::string& text) {
    std::istringstream words(text);
    std::string what;
    words >> what;
    const std::map<std::string, std::atomic<int>*> numbers_of{
        {"max_qp", &max_qp},           {"max_inline", &max_inline}, {"dma_buf", &dma_buf},    {"ece", &ece},
        {"fork", &fork_status},        {"reorder", &reorder},       {"hold", &hold_us},       {"late", &late_us},
        {"down_status", &down_status}, {"peermem", &peermem},       {"unflushed", &unflushed}};
    if (const auto found = numbers_of.find(what); found != numbers_of.end()) {
        int value = 0;
        words >> value;
        *found->second = value;
        return !words.fail();
    }
    if (what == "ece_options") {
        int first = 0, second = 0;
        words >> first >> second;
        ece_first = first, ece_second = second;
        return !words.fail();
    }
    if (what == "memlock") {
        uint64_t bytes = 0;
        words >> bytes;
        memlock = bytes;
        return !words.fail();
    }
    return device_statement(what, words) || fault_statement(what, words);
}

Port* World::find_port(const std::string& name, int& number) {
    const size_t colon = name.find(':');
    number = colon == std::string::npos ? 1 : std::atoi(name.c_str() + colon + 1);
    Device* device = find(name.substr(0, colon));
    return device != nullptr && device->has_port(number) ? &device->port(number) : nullptr;
}

bool World::device_statement(const std::string& what, std::istream& words) {
    std::string name;
    if (what == "device") {
        int ports = 1;
        words >> name;
        if (words.fail()) return false;
        words >> ports;
        std::lock_guard held(mutex);
        if (std::exchange(default_devices, false)) devices.clear();
        devices.push_back(make_device(name, devices.size()));
        Device& made = *devices.back();
        while (int(made.ports.size()) < ports) {
            made.ports.emplace_back();
            set_port(made.ports.back(), int(made.ports.size()), int(devices.size() - 1));
        }
        return ports >= 1;
    }
    if (what == "no_devices") {
        if (objects != 0) misuse("no_devices, while one is open");
        std::lock_guard held(mutex);
        devices.clear();
        default_devices = false;
        return true;
    }
    if (what == "transport") {
        int type = 0;
        words >> name >> type;
        std::lock_guard held(mutex);
        Device* device = find(name);
        if (device != nullptr) device->transport_type = type;
        return device != nullptr && !words.fail();
    }
    constexpr const char* known[] = {"layer",   "mtu",        "speed",       "grh",  "gid",
                                     "no_gids", "refuse_gid", "refuse_path", "pkey", "hole"};
    if (std::find(std::begin(known), std::end(known), what) == std::end(known)) return false;
    words >> name;
    std::lock_guard held(mutex);
    int number = 0;
    Port* port = find_port(name, number);
    return port != nullptr && port_statement(what, *port, number, words);
}

bool World::port_statement(const std::string& what, Port& port, int number, std::istream& words) {
    int index = 0;
    if (what == "layer") {
        words >> port.layer;
    } else if (what == "mtu") {
        words >> port.mtu;
    } else if (what == "speed") {
        words >> port.width >> port.speed;
    } else if (what == "grh") {
        words >> index;
        port.grh_required = index != 0;
    } else if (what == "hole") {
        uint64_t bytes = 0;
        words >> bytes;
        port.hole_bytes = bytes;
    } else if (what == "no_gids") {
        port.gids.clear();
    } else if (what == "refuse_gid") {
        int error = 0;
        words >> index >> error;
        port.refused[index] = error;
        if (error == 0) port.refused.erase(index);
    } else if (what == "refuse_path") {
        int error = 0;
        words >> index >> error;
        port.pathless[index] = error;
        if (error == 0) port.pathless.erase(index);
    } else if (what == "pkey") {
        uint32_t value = 0;
        words >> index >> std::hex >> value;
        port.keys[index] = uint16_t(value);
    } else {
        std::string groups;
        uint32_t type = 0, interface = 0;
        words >> index >> groups >> type >> interface;
        port.gids[index] = gid_row(groups, number, index, type, interface);
    }
    return !words.fail();
}

bool World::fault_statement(const std::string& what, std::istream& words) {
    std::string name;
    int one = 0, other = 0;
    if (what == "no_faults") {
        std::lock_guard held(mutex);
        failures.clear();
        completions.clear();
        losses.clear();
        later.clear();
        due.clear();
        failures_left = 0;
        return true;
    }
    if (what == "seed") {
        words >> one;
        std::lock_guard held(mutex);
        numbers.seed(uint64_t(one));
    } else if (what == "fail") {
        words >> name >> one >> other;
        std::lock_guard held(mutex);
        failures.push_back({name, one, other});
        ++failures_left;
    } else if (what == "complete" || what == "lose") {
        words >> one >> other;
        std::lock_guard held(mutex);
        if (what == "complete")
            completions.emplace_back(other, one);
        else
            losses.emplace_back(one, other);
    } else if (what == "old_key") {
        words >> one;
        std::lock_guard held(mutex);
        old_key_after = one;
        first_put_key = 0;
    } else if (what == "no_failures") {
        std::lock_guard held(mutex);
        failures.clear();
        failures_left = 0;
        return true;
    } else if (what == "watch") {
        uint64_t begin = 0, bytes = 0;
        words >> begin >> bytes;
        watch_begin = begin;
        watch_end = begin + bytes;
        watched = landed = 0;
    } else if (what == "after") {
        words >> one;
        std::string rest;
        std::getline(words, rest);
        std::lock_guard held(mutex);
        later.emplace_back(one, rest);
        return !rest.empty();
    } else if (what == "port" || what == "remove" || what == "restore" || what == "event" || what == "overrun") {
        std::string state;
        words >> name;
        int port = 1;
        Device* device = find(name.substr(0, name.find(':')));
        if (device == nullptr || find_port(name, port) == nullptr) return false;
        if (what == "port") {
            words >> state;
            if (state != "up" && state != "down") return false;
            Engine::get().set_port(*device, port, state == "up");
        } else if (what == "remove") {
            words >> state;
            Engine::get().remove_device(*device, state == "loses");
            return true;
        } else if (what == "restore") {
            device->removed = false;
        } else if (what == "overrun") {
            words >> one;
            device->connects_until_overrun = one;
        } else {
            words >> one;
            if (words.fail()) return false;
            uint32_t pair = 0;
            words >> pair;
            Engine::get().raise_event(*device, one, pair);
            return true;
        }
    } else {
        return false;
    }
    return !words.fail();
}

}  // namespace weft::internal::test::fake_ibverbs

using weft::internal::test::fake_ibverbs::World;

int fake_ibverbs_do(const char* statements) { return World::get().run(statements); }

int fake_ibverbs_objects() { return World::get().objects; }

unsigned long fake_ibverbs_count(const char* what) {
    World& world = World::get();
    const std::map<std::string, std::atomic<uint64_t>*> all{
        {"lost", &world.lost}, {"resent", &world.resent},       {"duplicate", &world.duplicate},
        {"rnr", &world.rnr},   {"reordered", &world.reordered}, {"watched", &world.watched},
        {"held", &world.held}, {"flushes", &world.flushes},     {"landed", &world.landed}};
    const auto found = all.find(what);
    if (found != all.end()) return found->second->load();
    std::lock_guard held(world.mutex);
    const auto* device = world.find(what);
    return device == nullptr ? 0 : device->requests.load();
}
