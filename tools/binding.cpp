#include "tools/binding.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <memory>
#include <string>

namespace weft::internal::tools {
namespace {

// A processor mask of any size: cpu_set_t ends at 1,024 processors.
class ProcessorMask {
  public:
    explicit ProcessorMask(int processors) : bytes_(CPU_ALLOC_SIZE(processors)), mask_(CPU_ALLOC(processors)) {
        CPU_ZERO_S(bytes_, mask_);
    }
    ~ProcessorMask() { CPU_FREE(mask_); }
    ProcessorMask(const ProcessorMask&) = delete;
    ProcessorMask& operator=(const ProcessorMask&) = delete;
    size_t bytes() const { return bytes_; }
    cpu_set_t* get() { return mask_; }
    bool has(int processor) const { return CPU_ISSET_S(processor, bytes_, mask_); }
    void add(int processor) { CPU_SET_S(processor, bytes_, mask_); }

  private:
    size_t bytes_;
    cpu_set_t* mask_;
};

Result<std::vector<int>> allowed_processors() {
    for (int size = 1024; size <= 1 << 20; size *= 4) {
        ProcessorMask mask(size);
        if (sched_getaffinity(0, mask.bytes(), mask.get()) == 0) {
            std::vector<int> allowed;
            for (int processor = 0; processor < size; ++processor) {
                if (mask.has(processor)) allowed.push_back(processor);
            }
            return allowed;
        }
        if (errno != EINVAL) break;  // EINVAL: the kernel's mask is larger than ours
    }
    return fail(error::system_call, "the set of usable processors cannot be read: {}", errno_text(errno));
}

// The number of allowed hardware threads of the same core that have a lower index. The kernel's format is "0-1,8".
// If a machine does not report cores, every thread counts as a core.
int place_within_core(int processor, const std::vector<int>& allowed) {
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(processor) + "/topology/thread_siblings_list");
    std::string list;
    std::getline(file, list);
    int place = 0;
    const char* end = list.data() + list.size();
    for (const char* text = list.data(); text < end;) {
        int first = 0;
        auto [rest, error] = std::from_chars(text, end, first);
        if (error != std::errc()) break;
        int last = first;
        if (rest < end && *rest == '-') rest = std::from_chars(rest + 1, end, last).ptr;
        for (int sibling = first; sibling <= std::min(last, processor - 1); ++sibling) {
            place += std::binary_search(allowed.begin(), allowed.end(), sibling);
        }
        text = rest + 1;
    }
    return place;
}

}  // namespace

Result<std::vector<int>> binding_order() {
    Result<std::vector<int>> allowed = allowed_processors();
    if (!allowed) return allowed;
    std::vector<std::pair<int, int>> order;
    for (int processor : *allowed) order.emplace_back(place_within_core(processor, *allowed), processor);
    std::sort(order.begin(), order.end());
    std::vector<int> processors;
    for (const auto& [place, processor] : order) processors.push_back(processor);
    return processors;
}

int bind_to(int processor) {
    ProcessorMask mask(processor + 1);
    mask.add(processor);
    return sched_setaffinity(0, mask.bytes(), mask.get()) == 0 ? 0 : errno;
}

}  // namespace weft::internal::tools
