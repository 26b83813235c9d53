#include "src/drivers/hwloc/hwloc.hpp"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "src/base/fd.hpp"
#include "src/drivers/library.hpp"
#include "src/xml/xml.hpp"

namespace weft::internal::hwloc {

namespace {

// The limit for a file or text: a machine of 4,096 threads has about 20,000 objects.
constexpr int objects_most = 1 << 20;
constexpr int threads_most = 8'192;  // Linux supports no more

struct HwlocFunctions {
#define WEFT_HWLOC_FUNCTION(name) decltype(&::hwloc_##name) name = nullptr;
#include "src/drivers/hwloc/hwloc.def"
#undef WEFT_HWLOC_FUNCTION
};

Result<HwlocFunctions> open(const std::string& path) {
    const std::string name = path.empty() ? "libhwloc.so.15" : path;  // 15 is the number of all 2.x
    if (name == "none") return fail(error::driver_disabled, "WEFT_HWLOC_LIBRARY is none");
    Result<DynamicLibrary> library = DynamicLibrary::open(name);
    if (!library) return fail(error::driver_missing, "no hwloc: {}", library.status().sentence());
    HwlocFunctions all;
    bool found = true;
#define WEFT_HWLOC_FUNCTION(name)                                                          \
    all.name = reinterpret_cast<decltype(&::hwloc_##name)>(library->find("hwloc_" #name)); \
    found = found && all.name != nullptr;
#include "src/drivers/hwloc/hwloc.def"
#undef WEFT_HWLOC_FUNCTION
    // Objects are read with the header's memory layout, which has not changed since 2.0.
    if (!found || all.get_api_version() >> 16 != HWLOC_API_VERSION >> 16)
        return fail(error::driver_missing, "no hwloc: {} is no hwloc of version 2.1 or later", name);
    library->keep();
    return all;
}

class Topology {
  public:
    explicit Topology(const HwlocFunctions& functions) : functions_(functions) {}
    Topology(const Topology&) = delete;
    Topology& operator=(const Topology&) = delete;
    ~Topology() {
        if (topology_) functions_.topology_destroy(topology_);
    }
    Status init() {
        if (functions_.topology_init(&topology_) != 0) {
            topology_ = nullptr;
            return fail(error::system_call, "hwloc cannot make a topology: {}", errno_text(errno));
        }
        functions_.topology_set_io_types_filter(topology_, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
        // These plugins would initialise GPU drivers. Weft asks NVML itself.
        for (const char* plugin : {"cuda", "nvml", "opencl", "gl", "rsmi", "levelzero"})
            functions_.topology_set_components(topology_, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugin);
        return ok();
    }
    hwloc_topology_t get() const { return topology_; }
    Result<HwlocTopology> load() {
        const StandardNumbers held;
        if (functions_.topology_load(topology_) != 0)
            return fail(error::system_call, "hwloc cannot load the topology: {}", errno_text(errno));
        add(functions_.get_obj_by_depth(topology_, 0, 0));
        return std::move(machine_);
    }

  private:
    // A loop, not recursion: a file decides how deep the tree is.
    void add(hwloc_obj_t root) {
        std::vector<std::pair<hwloc_obj_t, int>> left{{root, -1}};
        while (!left.empty()) {
            const auto [object, parent] = left.back();
            left.pop_back();
            if (machine_.objects.size() == size_t(objects_most)) return;
            const int index = int(machine_.objects.size());
            machine_.objects.push_back(describe(*object));
            machine_.objects.back().parent = parent;
            for (hwloc_obj_t first : {object->io_first_child, object->memory_first_child, object->first_child})
                for (hwloc_obj_t child = first; child; child = child->next_sibling) left.push_back({child, index});
        }
    }
    static ObjectKind kind_of(const hwloc_obj& object) {
        switch (object.type) {
            case HWLOC_OBJ_MACHINE: return ObjectKind::machine;
            case HWLOC_OBJ_PACKAGE: return ObjectKind::package;
            case HWLOC_OBJ_NUMANODE: return ObjectKind::numa;
            case HWLOC_OBJ_CORE: return ObjectKind::core;
            case HWLOC_OBJ_PU: return ObjectKind::thread;
            case HWLOC_OBJ_L1CACHE:
            case HWLOC_OBJ_L2CACHE:
            case HWLOC_OBJ_L3CACHE:
            case HWLOC_OBJ_L4CACHE: return ObjectKind::cache;
            case HWLOC_OBJ_BRIDGE: return ObjectKind::bridge;
            case HWLOC_OBJ_PCI_DEVICE: return ObjectKind::pci;
            case HWLOC_OBJ_OS_DEVICE:
                return object.attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK       ? ObjectKind::network
                       : object.attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS ? ObjectKind::openfabrics
                                                                                : ObjectKind::device;
            default: return ObjectKind::other;
        }
    }
    Object describe(const hwloc_obj& object) const {
        Object made;
        made.kind = kind_of(object);
        if (object.os_index != HWLOC_UNKNOWN_INDEX) made.number = int(object.os_index);
        if (object.cpuset) made.cpus = list(object.cpuset);
        if (object.name) made.name = object.name;
        for (unsigned i = 0; i < object.infos_count; ++i)
            made.facts.emplace_back(object.infos[i].name, object.infos[i].value);
        if (made.kind == ObjectKind::cache) {
            made.level = int(object.attr->cache.depth);
            made.bytes = int64_t(object.attr->cache.size);
        } else if (made.kind == ObjectKind::numa) {
            made.bytes = int64_t(object.attr->numanode.local_memory);
        } else if (made.kind == ObjectKind::pci) {
            describe(object.attr->pcidev, made);
        } else if (made.kind == ObjectKind::bridge && object.attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI) {
            describe(object.attr->bridge.upstream.pci, made);
        }
        return made;
    }
    static void describe(const decltype(hwloc_obj_attr_u::pcidev)& pci, Object& made) {
        made.bus_id = fmt::format("{:04x}:{:02x}:{:02x}.{:x}", unsigned(pci.domain), pci.bus, pci.dev, pci.func);
        made.device_class = pci.class_id;
        made.vendor = pci.vendor_id;
        made.device = pci.device_id;
        made.subsystem_vendor = pci.subvendor_id;
        made.subsystem_device = pci.subdevice_id;
        made.link_gbs = double(pci.linkspeed);
    }
    std::string list(hwloc_const_bitmap_t set) const {
        const int length = functions_.bitmap_list_snprintf(nullptr, 0, set);
        if (length <= 0) return {};
        std::string text(size_t(length) + 1, '\0');
        functions_.bitmap_list_snprintf(text.data(), text.size(), set);
        text.pop_back();
        return text;
    }

    const HwlocFunctions& functions_;
    hwloc_topology_t topology_ = nullptr;
    HwlocTopology machine_;
};

// hwloc trusts its files, and its reader accepts only XML in the form that hwloc writes, without comments for example.
// Therefore Weft parses the file, bounds its size, and writes it again in hwloc's form.
class Rewriter : xml::Handler {
  public:
    Result<std::string> rewrite(const std::string& text) {
        written_ = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n";
        WEFT_TRY(xml::read(text, *this));
        return std::move(written_);
    }

  private:
    void start(xml::Element& element) override {
        if (elements_ == 0 && element.name() != "topology")
            return element.wrong("expected <topology>, found <{}>: this is not hwloc's XML",
                                 xml::shown(element.name()));
        if (elements_ == 0) inspect_version(element);
        if (++elements_ > 8 * objects_most) element.wrong("the file has more than {} elements", 8 * objects_most);
        // Elements such as distances, and those that programs added, are skipped.
        const bool known = element.name() == "topology" || element.name() == "object" || element.name() == "info" ||
                           element.name() == "page_type";
        if (skipped_ > 0 || !known) {
            ++skipped_;
            return;
        }
        if (element.name() == "object") inspect(element);
        close_start();
        open_.emplace_back(element.name());
        written_ += fmt::format("<{}", element.name());
        element.each_attribute([&](const char* name, const char* value) {
            written_ += fmt::format(" {}=\"", name);
            for (; *value; ++value) xml::append_escaped(written_, *value);
            written_ += '"';
        });
        starting_ = true;
    }
    void end() override {
        if (skipped_ > 0) {
            --skipped_;
            return;
        }
        const bool empty = starting_ && open_.size() > 1;
        if (!empty) close_start();
        written_ += empty ? "/>\n" : fmt::format("</{}>\n", open_.back());
        starting_ = false;
        open_.pop_back();
    }
    void close_start() {
        if (starting_) written_ += ">\n";
        starting_ = false;
    }
    static void inspect_version(xml::Element& element) {
        const char* stated = element.find("version");
        const std::string_view version = stated ? stated : "1";  // hwloc 1 writes no version
        if (version.starts_with("2.")) return;
        const bool older = version.starts_with("1") || version.starts_with("0");
        element.wrong("the file is of hwloc {}; files of hwloc 2 are read: {}", xml::shown(version),
                      older ? "`lstopo -i machine.xml new.xml` of hwloc 2 converts it"
                            : "`lstopo -i machine.xml --export-xml-flags v2 new.xml` of the newer hwloc converts "
                              "it");
    }
    // hwloc crashes if processors or memory lack one of these.
    static void inspect(xml::Element& element) {
        const std::string_view type = element.text("type");
        for (const char* without : {"Bridge", "PCIDev", "OSDev", "Misc"})
            if (type == without) return;
        for (const char* set : {"cpuset", "complete_cpuset", "nodeset", "complete_nodeset"})
            if (element.text(set).empty())
                element.wrong("the {} has no {}: hwloc does not write such files", xml::shown(type), set);
    }
    int elements_ = 0;
    std::string written_;
    std::vector<std::string> open_;
    bool starting_ = false;  // the last tag is still open
    int skipped_ = 0;        // the number of open elements that are skipped
};

// The least number of threads of a text. Each level's number follows a colon or stands alone, in any base that C knows.
// Attributes in parentheses contain numbers too.
bool too_large(const std::string& text) {
    double threads = 1;
    int depth = 0;
    for (size_t i = 0; i < text.size(); ++i) {
        const char letter = text[i], before = i == 0 ? ' ' : text[i - 1];
        depth += int(letter == '(') - int(letter == ')');
        if (depth > 0 || letter < '0' || letter > '9' || (before != ':' && before != ' ' && before != '\t')) continue;
        const unsigned long long count = std::strtoull(text.c_str() + i, nullptr, 0);
        threads *= double(std::max(count, 1ull));
        if (threads > threads_most) return true;
    }
    return false;
}

}  // namespace

Result<HwlocTopology> this_machine(const std::string& library) {
    // If the kernel refuses the call, hwloc 2 retries for ever with larger masks. EINVAL means a mask that is too
    // small.
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0 && errno != EINVAL)
        return fail(error::system_call, "hwloc needs sched_getaffinity, which the kernel refuses: {}",
                    errno_text(errno));
    Result<HwlocFunctions> functions = open(library);
    if (!functions) return functions.take_status();
    Topology topology(*functions);
    WEFT_TRY(topology.init());
    // The processor set of a container does not change the description of the machine.
    functions->topology_set_flags(topology.get(), HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    return topology.load();
}

Result<HwlocTopology> read_xml(const std::string& library, const std::string& xml) {
    const Result<std::string> rewritten = Rewriter().rewrite(xml);
    if (!rewritten) return rewritten.status().copy();
    Result<HwlocFunctions> functions = open(library);
    if (!functions) return functions.take_status();
    Topology topology(*functions);
    WEFT_TRY(topology.init());
    functions->topology_set_flags(topology.get(), HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    if (functions->topology_set_xmlbuffer(topology.get(), rewritten->c_str(), int(rewritten->size()) + 1) != 0)
        return fail(error::file_syntax, "the file is no topology of hwloc; `lstopo machine.xml` writes one");
    Result<HwlocTopology> machine = topology.load();
    if (!machine)
        return fail(error::file_syntax, "hwloc does not understand the file: {}", machine.status().sentence());
    return machine;
}

Result<HwlocTopology> read_synthetic(const std::string& library, const std::string& text) {
    if (too_large(text))
        return fail(error::topology_invalid, "the machine has more than {} hardware threads; describe a smaller one",
                    threads_most);
    Result<HwlocFunctions> functions = open(library);
    if (!functions) return functions.take_status();
    Topology topology(*functions);
    WEFT_TRY(topology.init());
    constexpr const char* like = "write it as in `package:2 numa:1 l3:1 core:8 pu:2`";
    if (functions->topology_set_synthetic(topology.get(), text.c_str()) != 0)
        return fail(error::file_syntax, "hwloc does not understand {}; {}", xml::shown(text), like);
    Result<HwlocTopology> machine = topology.load();
    if (!machine) return fail(error::file_syntax, "hwloc makes no machine of {}; {}", xml::shown(text), like);
    return machine;
}

}  // namespace weft::internal::hwloc
