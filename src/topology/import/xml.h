/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads XML files that describe machines: there is a callback for each element
 * when it begins and, if wanted, for its text and its end. Entities are
 * refused. Reading ends at the first error, which names file and line.
 */
#ifndef ULI_TOPOLOGY_IMPORT_XML_H
#define ULI_TOPOLOGY_IMPORT_XML_H

#include <stddef.h>
#include "ulyx/types.h"

/* Part of the struct of each reader. */
struct uli_xml {
    const char *name; /* of the file, for errors */
    void (*on_start)(
        struct uli_xml *xml, const char *element, const char **attributes);
    /* Both may be NULL. on_text gets the text between two tags, whole or in
     * parts. */
    void (*on_end)(struct uli_xml *xml, const char *element);
    void (*on_text)(struct uli_xml *xml, const char *text, size_t length);
    int depth_max;        /* most elements inside one another */
    int depth;            /* number of elements around the current one */
    ulyx_status_t status; /* of the first error */
    void *parser;
};

/* Calls on_start for each element until the end or the first error. Errors:
 * INVALID_ARGUMENT (not well-formed, too deep, entities, what on_start
 * refuses), NO_MEMORY. */
ulyx_status_t uli_xml_read(struct uli_xml *xml, const char *text, size_t bytes);

/* For callbacks: end the reading with an error, of the text (refuse) or with a
 * status that was reported (stop). The first error counts. */
void uli_xml_refuse(struct uli_xml *xml, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void uli_xml_stop(struct uli_xml *xml, ulyx_status_t status);

/* The value of an attribute. NULL: the element has no such attribute. */
const char *uli_xml_attribute(const char **attributes, const char *name);

#endif
