package org.apache.iceberg;

import java.io.File;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.iceberg.types.Types;

/** Reads trees of version 4 with the Iceberg library's own reader and prints each live file as a line of JSON. */
public final class TreeReader {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** A root as the library would list it, if anything listed roots. */
  private static final class Root extends GenericManifestFile {
    Root(InputFile file, long snapshotId) {
      super(file, 0, snapshotId);
    }

    @Override
    public int formatVersion() {
      return 4;
    }
  }

  private final String name;
  private final String location;
  private final Schema schema;
  private final Map<Integer, PartitionSpec> specs = new TreeMap<>();
  private final FileIO io = new HadoopFileIO(new Configuration());

  private TreeReader(JsonNode table) {
    this.name = table.get("name").asText();
    this.location = table.get("location").asText();
    this.schema = SchemaParser.fromJson(table.get("schema"));
    for (JsonNode spec : table.get("specs")) {
      specs.put(spec.get("spec-id").asInt(), PartitionSpecParser.fromJson(schema, spec));
    }
  }

  public static void main(String[] args) throws Exception {
    for (JsonNode table : JSON.readTree(new File(args[0]))) {
      new TreeReader(table).read(table.get("root").asText(), table.get("snapshot").asLong());
    }
  }

  private void read(String root, long snapshotId) throws Exception {
    ManifestFile listed = new Root(io.newInputFile(root), snapshotId);
    V4ManifestReader reader = built(V4ManifestReader.uncommitted(listed, io, schema, specs));
    for (TrackedFile row : reader) {
      TrackedFile file = row.copy();
      switch (file.contentType()) {
        case DATA_MANIFEST:
        case DELETE_MANIFEST:
          readLeaf(TrackedFileAdapters.asManifestFile(file), file);
          break;
        default:
          print(file, reader.readSchema());
      }
    }
    reader.close();
  }

  private V4ManifestReader built(V4ManifestReader.Builder builder) {
    MetricsConfig everything = MetricsConfig.from(Map.of(), schema, SortOrder.unsorted());
    return builder.tableLocation(location).metricsConfig(everything).build();
  }

  private void readLeaf(ManifestFile leaf, TrackedFile row) throws Exception {
    ManifestBitmap hidden = row.manifestInfo().manifestDeletionVector();
    if (hidden != null) {
      print(leaf, row.recordCount(), hidden);
      return;
    }
    V4ManifestReader reader = built(V4ManifestReader.builder(leaf, io, schema, specs));
    for (TrackedFile file : reader) {
      print(file, reader.readSchema());
    }
    reader.close();
  }

  /** The library refuses to read a leaf of which rows are hidden; which ones are it can tell. */
  private void print(ManifestFile leaf, long rows, ManifestBitmap hidden) {
    ObjectNode row = JSON.createObjectNode().put("table", name).put("leaf", leaf.path());
    ArrayNode positions = row.putArray("hidden");
    for (int at = 0; at < rows; at += 1) {
      if (hidden.isSet(at)) {
        positions.add(at);
      }
    }
    System.out.println(row);
  }

  private void print(TrackedFile file, Schema readSchema) throws Exception {
    ObjectNode row = JSON.createObjectNode();
    row.put("table", name).put("location", file.location()).put("content", file.contentType().id());
    row.put("spec_id", file.specId()).put("records", file.recordCount()).put("bytes", file.fileSizeInBytes());
    row.put("number", file.tracking().dataSequenceNumber());
    row.put("file_number", file.tracking().fileSequenceNumber());
    row.put("snapshot_id", file.tracking().snapshotId()).put("first_row_id", file.tracking().firstRowId());
    row.set("partition", partition(file, readSchema));
    row.set("bounds", bounds(file));
    DeletionVector vector = file.deletionVector();
    if (vector != null) {
      row.putArray("vector").add(vector.location()).add(vector.offset()).add(vector.sizeInBytes()).add(vector.cardinality());
    }
    System.out.println(row);
  }

  private static ObjectNode partition(TrackedFile file, Schema readSchema) {
    ObjectNode found = JSON.createObjectNode();
    Types.NestedField field = readSchema.findField(TrackedFile.PARTITION_ID);
    if (file.partition() != null && field != null && field.type().isStructType()) {
      int at = 0;
      for (Types.NestedField own : field.type().asStructType().fields()) {
        Object value = file.partition().get(at++, Object.class);
        if (value != null) {
          found.put(String.valueOf(own.fieldId()), value.toString());
        }
      }
    }
    return found;
  }

  private static ObjectNode bounds(TrackedFile file) {
    ObjectNode found = JSON.createObjectNode();
    if (file.contentStats() != null) {
      for (FieldStats<?> stats : file.contentStats().fieldStats()) {
        if (stats != null && stats.lowerBound() != null) {
          found.put(String.valueOf(stats.fieldId()), stats.lowerBound() + ".." + stats.upperBound());
        }
      }
    }
    return found;
  }
}
