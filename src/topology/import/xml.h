/* SPDX-License-Identifier: Apache-2.0
 *
 * XML of machines for its readers: a callback for each element as it begins,
 * and on request for its text and its end. Entities are refused. Reading ends
 * at the first error, which names file and line.
 */
#ifndef ULI_TOPOLOGY_IMPORT_XML_H
#define ULI_TOPOLOGY_IMPORT_XML_H

#include <stddef.h>
#include "ulyx/types.h"

/* First in what a reader keeps. */
struct uli_xml {
    const char *name; /* of the file, for errors */
    void (*on_start)(
        struct uli_xml *xml, const char *element, const char **attributes);
    /* May be NULL. on_text: a run of text between two tags, or a part of it. */
    void (*on_end)(struct uli_xml *xml, const char *element);
    void (*on_text)(struct uli_xml *xml, const char *text, size_t length);
    int depth_max;        /* elements in one another */
    int depth;            /* of those around the one that a function is for */
    ulyx_status_t status; /* of the first error */
    void *parser;
};

/* Calls on_start for each element until the end or the first error. Errors:
 * INVALID_ARGUMENT (not well-formed, too deep, entities, what on_start
 * refuses), NO_MEMORY. */
ulyx_status_t uli_xml_read(struct uli_xml *xml, const char *text, size_t bytes);

/* In on_start: the text is wrong, or there is no memory for it. The first one
 * counts. */
void uli_xml_refuse(struct uli_xml *xml, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void uli_xml_stop(struct uli_xml *xml, ulyx_status_t status);

/* NULL: the element has no such attribute. */
const char *uli_xml_attribute(const char **attributes, const char *name);

#endif
