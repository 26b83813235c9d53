// boxes.hpp: Python's boxes and items as structs of train.h.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>
#include <weft/train.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "python/binding/array.hpp"
#include "python/binding/failure.hpp"
#include "python/binding/stream.hpp"

namespace weft::python {

// The boxes or items of a call, with the memory that their structs point to.
struct Described {
    std::vector<Array> arrays;
    std::deque<StreamArgument> streams;
    std::vector<std::vector<size_t>> numbers;
    std::vector<weftTrainBox_t> boxes;
    std::vector<weftTrainItem_t> items;

    const size_t* keep(nb::handle list) {
        numbers.push_back(nb::cast<std::vector<size_t>>(list));
        return numbers.back().data();  // the memory of a vector stays when the outer one grows
    }
    // The name stays valid with its tuple.
    void add_box(nb::handle entry, Access access) {
        if (!nb::isinstance<nb::tuple>(entry)) raise(entry);  // an exception of the Python part
        const auto parts = nb::cast<nb::tuple>(entry);
        weftTrainBox_t box = WEFT_TRAIN_BOX_INITIALIZER;
        box.name = PyUnicode_AsUTF8(parts[0].ptr());
        if (!box.name) throw nb::python_error();
        Array data(without_autograd(parts[1]), box.name, access);
        box.data = data.data();
        box.datatype = data.type();
        box.extents = keep(parts[2]);
        size_t count = 1;
        for (const size_t extent : numbers.back()) count *= extent;
        check_count(data, box.name, count, "as many as its shape says");
        const size_t dims = numbers.back().size();
        box.shape = keep(parts[3]);
        box.dims = int(numbers.back().size());
        if (nb::isinstance<nb::int_>(parts[4]))
            set_range(box, nb::cast<size_t>(parts[4]), count);
        else
            box.offsets = keep(parts[4]);
        const StreamArgument& stream = streams.emplace_back(parts[5]);
        box.stream = data.on_device() ? stream.handle : nullptr;
        if (!box.isRange && (numbers.back().size() != dims || size_t(box.dims) != dims))
            refuse("python.value", std::string("the shape and offsets of ") + box.name +
                                       " do not have as many numbers as its array has dimensions");
        arrays.push_back(std::move(data));
        boxes.push_back(box);
    }
    static void set_range(weftTrainBox_t& box, size_t begin, size_t count) {
        box.isRange = 1;
        box.begin = begin;
        box.count = count;
        box.extents = nullptr;
    }
    void add_item(nb::handle entry) {
        const auto parts = nb::cast<nb::tuple>(entry);
        weftTrainItem_t item = WEFT_TRAIN_ITEM_INITIALIZER;
        item.name = PyUnicode_AsUTF8(parts[0].ptr());
        if (!item.name) throw nb::python_error();
        Array data(without_autograd(parts[1]), item.name, Access::read);
        item.data = data.data();
        item.bytes = data.bytes();
        item.perRank = nb::cast<bool>(parts[2]) ? 1 : 0;
        arrays.push_back(std::move(data));
        items.push_back(item);
    }
};

}  // namespace weft::python
