#include "src/api/training/boxes.hpp"

#include <cstddef>
#include <cstring>
#include <set>

#include "src/api/training/handle.hpp"
#include "src/api/training/structs.hpp"
#include "src/base/datatype.hpp"
#include "src/streams/host_stream.hpp"
#include "src/train/memory_space.hpp"

namespace weft::internal {

namespace {

// The sizes in the first version; later versions only append fields.
constexpr size_t first_item_size = offsetof(weftTrainItem_t, perRank) + sizeof(int);

Status check_name(const char* name, const char* kind, size_t number) {
    if (!name || !*name) return fail(error::argument_null, "{} {} has no name: set its field name", kind, number);
    if (!train::is_text(name))
        return fail(error::argument_value, "the name of {} {} is not UTF-8: files cannot hold it", kind, number);
    return ok();
}

// Offsets and extents lie within the shape, and the elements can be counted.
Status check_place(const train::StoredBox& box, size_t number) {
    size_t elements = 1;
    for (size_t d = 0; d < box.shape.size(); ++d) {
        const size_t offset = box.box.offsets[d], extent = box.box.extents[d], length = box.shape[d];
        if (extent > length || offset > length - extent)
            return fail(error::argument_value,
                        "box {}, of \"{}\", has {} elements from {} on in dimension {}, whose length is {}", number,
                        box.tensor, extent, offset, d, length);
        if (length > elements_most || (length > 0 && elements > elements_most / length))
            return fail(error::argument_count, "box {}: \"{}\" has more elements than any memory holds", number,
                        box.tensor);
        elements *= length;
    }
    return ok();
}

// All but the place within the tensor.
Result<train::StoredBox> read_tensor(const weftTrainBox_t& box, size_t number) {
    WEFT_TRY(check_name(box.name, "box", number));
    if (train::is_item_name(box.name) || strcmp(box.name, "__metadata__") == 0)
        return fail(error::argument_value, "box {} has the name \"{}\", which is reserved", number, box.name);
    if (!is_datatype(box.datatype))
        return fail(error::argument_datatype, "the datatype of box {}, \"{}\", is {}; types are 0 to {}", number,
                    box.name, int(box.datatype), weftNumTypes - 1);
    if (box.dims < 0 || box.dims > WEFT_TRAIN_DIMS_MAX)
        return fail(error::argument_value, "box {}, \"{}\", has {} dimensions; it must be 0 to {}", number, box.name,
                    box.dims, WEFT_TRAIN_DIMS_MAX);
    if (!box.shape && box.dims > 0)
        return fail(error::argument_null, "box {}, \"{}\", has {} dimensions, but its shape is NULL", number, box.name,
                    box.dims);
    if (!is_switch(box.isRange))
        return fail(error::argument_value, "box {}, \"{}\": isRange is {}; it must be 0 or 1", number, box.name,
                    box.isRange);
    if (box.isRange == 1 && (box.offsets || box.extents))
        return fail(error::argument_value, "box {}, \"{}\", is a range: its offsets and extents must be NULL", number,
                    box.name);
    const size_t dims = size_t(box.dims);
    train::StoredBox read;
    read.tensor = box.name;
    read.type = box.datatype;
    if (dims > 0) read.shape.assign(box.shape, box.shape + dims);
    read.box = {std::vector<size_t>(dims), read.shape};
    if (box.offsets) read.box.offsets.assign(box.offsets, box.offsets + dims);
    if (box.extents) read.box.extents.assign(box.extents, box.extents + dims);
    WEFT_TRY(check_place(read, number));
    return read;
}

// The box's memory, or its copy in host memory.
Result<void*> host_memory(const weftTrainBox_t& box, size_t number, size_t elements,
                          const train::DeviceFinder& device_of, train::Staging& staging) {
    if (elements == 0) return box.data;
    if (!box.data)
        return fail(error::argument_null, "box {}, \"{}\", has {} elements, but its data is NULL", number, box.name,
                    elements);
    const auto device = device_of(box.data);
    if (!device) return device.status().copy();
    if (*device < 0) return box.data;
    if (is_host_stream(box.stream))
        return fail(error::argument_stream, "box {}, \"{}\", lies on a device: its stream must be a CUDA stream",
                    number, box.name);
    return staging.add(box.data, elements * size_of(box.datatype), *device, box.stream);
}

Status read_box(const weftTrainBox_t& box, size_t number, const train::DeviceFinder& device_of, train::Staging& staging,
                std::vector<train::OwnBox>& read) {
    auto tensor = read_tensor(box, number);
    if (!tensor) return tensor.take_status();
    const size_t whole = tensor->box.volume();
    if (box.isRange == 0) {
        const auto memory = host_memory(box, number, whole, device_of, staging);
        if (!memory) return memory.status().copy();
        read.push_back({std::move(*tensor), *memory});
        return ok();
    }
    if (box.count > whole || box.begin > whole - box.count)
        return fail(error::argument_value, "box {}, of \"{}\", has {} elements from {} on, but the tensor has {}",
                    number, box.name, box.count, box.begin, whole);
    const auto memory = host_memory(box, number, box.count, device_of, staging);
    if (!memory) return memory.status().copy();
    auto* data = static_cast<std::byte*>(*memory);
    for (train::Box& part : train::boxes_of_range(tensor->shape, box.begin, box.count)) {
        tensor->box = std::move(part);
        read.push_back({*tensor, data});
        data += tensor->bytes();
    }
    if (whole == 0) read.push_back({std::move(*tensor), box.data});  // the tensor is stored, too
    return ok();
}

}  // namespace

Status read_boxes(const char* function, const weftTrainBox_t* boxes, size_t count, train::Staging& staging,
                  std::vector<train::OwnBox>& read) {
    if (!boxes && count > 0)
        return fail(error::argument_null, "{}: boxes is NULL, but boxCount is {}", function, count);
    const train::DeviceFinder device_of = train::device_finder();
    for (size_t i = 0; i < count; ++i) {
        const auto entry = read_struct(boxes, i, WEFT_TRAIN_BOX_INITIALIZER, first_box_size, fmt::format("box {}", i),
                                       "WEFT_TRAIN_BOX_INITIALIZER");
        if (!entry) return entry.status().copy();
        WEFT_TRY(read_box(*entry, i, device_of, staging, read));
    }
    return staging.finish();
}

Status read_items(const char* function, const weftTrainItem_t* items, size_t count, int rank,
                  std::vector<train::OwnBox>& read) {
    if (!items && count > 0)
        return fail(error::argument_null, "{}: items is NULL, but itemCount is {}", function, count);
    std::set<std::string> names;
    for (size_t i = 0; i < count; ++i) {
        const auto item = read_struct(items, i, WEFT_TRAIN_ITEM_INITIALIZER, first_item_size, fmt::format("item {}", i),
                                      "WEFT_TRAIN_ITEM_INITIALIZER");
        if (!item) return item.status().copy();
        WEFT_TRY(check_name(item->name, "item", i));
        if (!is_switch(item->perRank))
            return fail(error::argument_value, "item {}, \"{}\": perRank is {}; it must be 0 or 1", i, item->name,
                        item->perRank);
        if (!item->data && item->bytes > 0)
            return fail(error::argument_null, "item {}, \"{}\", has {} bytes, but its data is NULL", i, item->name,
                        item->bytes);
        if (item->bytes > elements_most)
            return fail(error::argument_count, "item {}, \"{}\", has more bytes than any memory holds", i, item->name);
        if (!names.insert(item->name).second)
            return fail(error::argument_value, "two items have the name \"{}\": names are different", item->name);
        train::OwnBox box;
        box.facts.tensor = train::item_name(item->name, item->perRank == 1 ? rank : -1);
        box.facts.shape = {item->bytes};
        box.facts.box = {{0}, {item->bytes}};
        box.data = const_cast<void*>(item->data);
        read.push_back(std::move(box));
    }
    return ok();
}

}  // namespace weft::internal
